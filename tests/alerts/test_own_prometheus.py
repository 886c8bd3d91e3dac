"""A real Prometheus reads what `meks synth` writes for it, and `meks apply` sees what it lacks."""

import os
import subprocess
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import botocore
import pytest
import yaml

from megatron_eks.charts.dashboards import write_rules
from megatron_eks.config.cluster import Observability
from megatron_eks.kubernetes.client import wait_for
from megatron_eks.localcloud.kubernetes import build
from megatron_eks.localcloud.kubernetes.processes import free_port
from megatron_eks.ops.cluster.watchers import bring
from megatron_eks.plan.cluster.alerts import ALERTS
from tests.charts.rendered import cluster
from tests.ops.aws.fakes import FakeKubernetes, console, said

pytestmark = [pytest.mark.oracle, pytest.mark.control_plane]

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def plan_for(port):
    """Return the plan of a cluster with a Prometheus of its own."""
    watched = Observability(prometheus_url=f"http://127.0.0.1:{port}")
    return replace(cluster(), observability=watched)


@contextmanager
def prometheus(folder, port, text):
    """Run it with a configuration, in a folder that has the files of a pod."""
    (folder / "token").write_text("token")
    (folder / "ca.crt").write_text(Path(botocore.__file__).with_name("cacert.pem").read_text())
    (folder / "prometheus.yaml").write_text(text.replace(ACCOUNT, str(folder)))
    program = build.programs(os.environ, print)[build.PROMETHEUS]
    words = ["--config.file=prometheus.yaml", "--storage.tsdb.path=data"]
    words.append(f"--web.listen-address=127.0.0.1:{port}")
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([program, *words], cwd=folder, stdout=log, stderr=log)  # noqa: S603 -- ours
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def lacking(folder, plan):
    """Return what the command says of it; it changes nothing."""
    of = console()
    assert bring(plan, FakeKubernetes(), folder, of, only_diff=True) == 0
    return said(of)


def test_the_files_are_all_it_needs(tmp_path, promtool):
    """With them it lacks nothing; with another's it lacks every alert and scrape job of ours."""
    port = free_port()
    plan = plan_for(port)
    written = tmp_path / "observability"
    write_rules(plan, written)
    subprocess.run([promtool, "check", "rules", written / "rules.yaml"], check=True)  # noqa: S603
    scraped = yaml.safe_load((written / "scrape.yaml").read_text())
    own = yaml.safe_dump({**scraped, "rule_files": [str(written / "rules.yaml")]})
    with prometheus(tmp_path, port, own):
        wait_for("its answer", lambda: "does not say" not in lacking(tmp_path, plan), 60)
        wait_for("the scrape jobs", lambda: "MEKS" not in lacking(tmp_path, plan), 60)
    with prometheus(tmp_path, port, "global: {scrape_interval: 30s}\n"):
        wait_for("its answer", lambda: "does not say" not in lacking(tmp_path, plan), 60)
        told = lacking(tmp_path, plan)
    assert f"lacks {len(ALERTS)} alerts: " in told
    assert all(alert.name in told for alert in ALERTS)
    assert "lacks 4 scrape jobs: dcgm-exporter, kube-scheduler, kubelet, training" in told
    assert "/observability/rules.yaml into it" in told
    write_rules(replace(plan, observability=Observability()), written)
    assert [*written.iterdir()] == []
