"""Where the cluster is watched, pods of jobs tell a scraper how they go, whatever runs them."""

from dataclasses import replace
from typing import cast

import pytest
import yaml

from megatron_eks.config.cluster import Observability
from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import parse_job
from megatron_eks.guards.check import findings_for_manifests
from megatron_eks.guards.codes import Rule
from megatron_eks.ops.jobs.tensorboard import event_files
from megatron_eks.plan.cluster.observability import (
    METRICS_PORT,
    METRICS_PORT_NAME,
    scrape_training,
)
from megatron_eks.plan.jobs.table import plan_job
from megatron_eks.programs.exporter.plan import VARIABLE, Plan
from megatron_eks.project import ROOT
from tests.charts.network import Peer, Port, outside, policies, reaches
from tests.charts.rendered import cluster, deployed, jobs, other_platform, platform, pods

WATCHED = replace(other_platform(observed=True), observability=Observability())
OWN = other_platform(WATCHED, observed_by_pods=True)
LABEL = "app.kubernetes.io/name"
PROMETHEUS = Peer("monitoring", {LABEL: "prometheus"}, "100.64.0.9")
QUEUER = Peer("kueue-system", {LABEL: "kueue-controller-manager"})
TRAINED = ["megatron-cpt-techpulse", "bridge-cpt-techpulse", "fsdp-llama-2-7b", "ddp-llama-3-2-1b"]


def planned(name, plan=WATCHED):
    """Plan a shipped job, or the text of one."""
    text = name if ":" in name else (ROOT / "jobs" / f"{name}.yaml").read_text()
    config, findings = parse_job(read_mapping(text, "job.yaml"))
    assert config, findings
    return plan_job(config, plan, deployed().images)


@pytest.mark.parametrize("workload", ["pytorchjob", "jobset", "trainjob", "job"])
def test_each_workload_tells_alike(workload):
    """A port by which it is found, the plan, and annotations for a Prometheus of one's own."""
    job = replace(planned("megatron-cpt-techpulse"), workload=workload)
    found = [*pods(jobs(job, plan=WATCHED))]
    assert found
    for pod in found:
        assert pod.container["ports"] == [
            {"name": METRICS_PORT_NAME, "containerPort": METRICS_PORT}
        ]
        (text,) = [each["value"] for each in pod.container["env"] if each["name"] == VARIABLE]
        assert Plan.read(text) == job.metrics
        template = str(pod.owner)
        assert f"'prometheus.io/port': '{METRICS_PORT}'" in template


@pytest.mark.parametrize("name", TRAINED)
def test_a_job_knows_its_plan(name):
    """The band that the alarm compares with is the prediction's own."""
    job = planned(name)
    found, speed = job.metrics, job.training.speed
    assert found.step_seconds_low < found.step_seconds == speed.step_seconds
    assert found.step_seconds < found.step_seconds_high
    assert found.peak_seconds / speed.step_seconds == pytest.approx(speed.mfu)
    rate = speed.tokens_per_second_per_gpu * job.gpus
    assert found.tokens / found.step_seconds == pytest.approx(rate)
    own = name.startswith(("fsdp", "ddp"))
    assert bool(found.metrics_file) is own


def test_a_program_of_ones_own_may_write_event_files():
    """Below the folder that its variable names, or else where it saves; of as many GPUs."""
    head = "{schema_version: 1, kind: torchrun, name: a, pool: p4d, nodes: 2, program: {module: a}"
    saves = "checkpoint: {directory: /shared/c, complete_marker: whole, keep_last: 2}"
    names = "runtime: {env: {TENSORBOARD_LOGGING_DIR: /shared/t}}"
    for more, folder in ((saves, "/shared/c"), (f"{saves}, {names}", "/shared/t")):
        job = planned(f"{head}, {more}}}")
        assert (job.metrics.event_files, job.metrics.gpus) == (folder, 16)
    assert event_files(job) == "/shared/t"
    assert planned(f"{head}}}").metrics.event_files is None


def test_megatrons_steps_go_to_mlflow_where_nobody_watches_too():
    """From the process that keeps its log; no port is opened for it."""
    text = (ROOT / "jobs" / "megatron-cpt-techpulse.yaml").read_text()
    wish = "runtime:\n  tracking: {mlflow: {uri: https://m.example.com, experiment: e}}\n"
    text = text.replace("runtime:\n", wish)
    assert planned(text).metrics == replace(planned("megatron-cpt-techpulse").metrics, mlflow=True)
    job = planned(text, cluster())
    assert (job.metrics.mlflow, job.metrics.port) == (True, 0)
    for pod in pods(jobs(job)):
        assert "ports" not in pod.container
        assert VARIABLE in {each["name"] for each in pod.container["env"]}
        assert "prometheus.io" not in str(pod.owner)


def test_what_makes_no_steps_tells_nothing():
    """A test of the network, and what prepares data; nor does any job of a cluster unwatched."""
    assert planned("nccl-test-p4d").metrics is None
    assert planned("data-prep-techpulse").metrics is None
    assert planned("megatron-cpt-techpulse", cluster()).metrics is None


@pytest.mark.parametrize(
    ("plan", "before", "scraper", "other"),
    [
        (WATCHED, cluster(), outside("10.0.0.99"), outside("192.0.2.7")),
        # Of any namespace, whatever addresses the network gives to pods.
        (OWN, WATCHED, PROMETHEUS, Peer("monitoring", {LABEL: "other"}, "100.64.0.9")),
    ],
    ids=["in the VPC", "a pod"],
)
def test_a_scraper_is_let_in_and_nobody_else(plan, before, scraper, other):
    """On the one port, of training pods; other jobs stay closed, and all where nobody watches."""
    found, namespace = policies(platform(plan)), plan.platform.namespace
    port: Port = (METRICS_PORT, "TCP")
    rank, task = (Peer(namespace, {"app": app}) for app in ("megatron-training", "fetch"))
    assert reaches(found, scraper, rank, port)
    assert not reaches(found, scraper, rank, (METRICS_PORT + 1, "TCP"))
    assert not reaches(found, scraper, task, port)
    assert not reaches(found, other, rank, port)
    assert not reaches(policies(platform(before)), scraper, rank, port)
    findings = findings_for_manifests({"10.yaml": yaml.safe_dump_all(found)})
    assert Rule.POLICY_MEANING not in {each.code for each in findings}


@pytest.mark.parametrize("observed", [True, False])
def test_queues_tell_a_scraper_how_they_go(observed):
    """At a port of their own, which is found by its name; closed where nobody watches."""
    found = platform(other_platform(observed=observed, kueue=True))
    scraper = outside("10.0.0.99")
    assert reaches(policies(found), scraper, QUEUER, (8443, "TCP")) is observed
    (pod,) = (each for each in pods(found) if each.namespace == "kueue-system")
    named = {each["name"]: each["containerPort"] for each in pod.container["ports"]}
    assert named.get(METRICS_PORT_NAME) == (8443 if observed else None)


def test_a_prometheus_of_ones_own_reads_queues_too():
    """From its pod, and the webhook's port stays closed to it."""
    found = policies(platform(other_platform(OWN, observed=True, kueue=True)))
    assert reaches(found, PROMETHEUS, QUEUER, (8443, "TCP"))
    assert not reaches(found, PROMETHEUS, QUEUER, (9443, "TCP"))


def test_pods_are_found_by_the_name_of_their_port():
    """In the namespace of jobs alone, with the labels that rules speak of."""
    found = scrape_training("jobs")
    assert found["kubernetes_sd_configs"] == [{"role": "pod", "namespaces": {"names": ["jobs"]}}]
    keep, *labels = cast("list[dict[str, str]]", found["relabel_configs"])
    assert (keep["regex"], keep["action"]) == (METRICS_PORT_NAME, "keep")
    assert [each["target_label"] for each in labels] == ["namespace", "pod", "node"]
