"""A real Prometheus watches a real trainer that stands still: one alarm, and no other."""

import contextlib
import json
import os
import signal
import urllib.parse
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from megatron_eks.kubernetes.client import wait_for
from megatron_eks.localcloud.kubernetes import prometheus
from megatron_eks.localcloud.kubernetes.build import PROMETHEUS
from megatron_eks.ops.local_watch import alerts, write_watch
from megatron_eks.plan.cluster.observability import METRICS_PORT
from megatron_eks.programs.exporter.plan import Plan
from tests.annex import jobs
from tests.annex.kubelet import runs
from tests.charts import rendered
from tests.programs.trainer_files import Run

pytestmark = [pytest.mark.control_plane, pytest.mark.programs, pytest.mark.long]

NAME = "watched"
FOLDER = f"/shared/{NAME}"
STEPS = 1_000_000


@pytest.fixture(scope="module")
def port(cluster, programs, tmp_path_factory):
    """Return the port of a Prometheus with the rules of `meks local up --watch`."""
    files = write_watch(tmp_path_factory.mktemp("watch"), cluster.plan)
    prometheus.start(cluster.plane, programs[PROMETHEUS], *files, cluster.fleet.holder)
    return cluster.plane.ports[PROMETHEUS]


def ask(port, query):
    """Return the series of a query: their labels and values."""
    words = urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{words}") as answer:
        return [
            (each["metric"], float(each["value"][1]))
            for each in json.load(answer)["data"]["result"]
        ]


def firing(port):
    """Return the names of alerts that fire."""
    return [labels["alertname"] for labels, _ in ask(port, 'ALERTS{alertstate="firing"}')]


def training(cluster):
    """Return a job of the real train_ddp on a CPU, with as much to do as nobody waits for."""
    run = Run(cluster.shared() / NAME, Path("python"), "train_ddp")
    run.config["training"] |= {"max_steps": STEPS, "validation_interval": STEPS, "log_interval": 1}
    run.config["checkpoint"]["interval"] = STEPS
    text = json.dumps(run.config).replace(str(run.root), FOLDER)
    (run.root / "config.json").write_text(text)
    plan = Plan(
        *(NAME, "ddp", METRICS_PORT),
        steps=STEPS,
        tokens=128,
        metrics_file=f"{FOLDER}/checkpoints/metrics.jsonl",
    )
    shipped = rendered.training_job(name="ddp-llama-3-2-1b")
    job = replace(shipped, name=NAME, nodes=1, files={}, metrics=plan, workload="pytorchjob")
    found = rendered.only(rendered.jobs(job), "PyTorchJob")
    found["spec"]["nprocPerNode"] = "1"
    (pod,) = jobs.pod_specs(found)
    (container,) = pod["containers"]
    for each in (container, *pod.get("initContainers", ())):
        each["image"] = runs.GANG
    container["command"][3] = f"/shared/logs/{NAME}"
    container["args"] = ["--config", f"{FOLDER}/config.json", "--device=cpu"]
    return found


def test_a_job_that_stands_still_is_told_of(cluster, submit, port):
    """By NoStep alone, within its time, and no longer than it lasts."""
    job = submit(training(cluster))
    wait_for("steps", lambda: [step for _, step in ask(port, "meks_step") if step > 3], 240)
    ((labels, _),) = ask(port, "meks_step")
    assert (labels["job"], labels["kind"], labels["namespace"]) == (NAME, "ddp", job_namespace(job))
    assert firing(port) == []
    (pod,) = jobs.pods_of(cluster.client, job)
    assert (labels["pod"], labels["node"]) == (pod["metadata"]["name"], pod["spec"]["nodeName"])
    (rank,) = cluster.ranks_of(pod, "train_ddp")
    os.kill(rank, signal.SIGSTOP)
    try:
        told = wait_for("an alarm", lambda: firing(port), 300)
        (line,) = alerts(port)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(rank, signal.SIGCONT)
    assert told == ["NoStep"]
    assert line.startswith(f"alert NoStep: job {NAME} has made no step for ")
    assert f"meks status {NAME}" in line
    wait_for("its end", lambda: firing(port) == [], 120)


def job_namespace(job):
    """Return where a job's pods are."""
    return job["metadata"]["namespace"]


def test_the_configuration_out_here_is_the_stacks_own(cluster, tmp_path):
    """The scraper of AWS gets the same scrape job, without what only this machine needs."""
    scraped, _ = write_watch(tmp_path, cluster.plan)
    content = yaml.safe_load(scraped.read_text())
    found = prometheus.configuration(content, tmp_path / "kubeconfig", "http://127.0.0.1:1")
    (job,) = found["scrape_configs"]
    assert job.pop("proxy_url") == "http://127.0.0.1:1"
    (discovery,) = job["kubernetes_sd_configs"]
    assert discovery.pop("kubeconfig_file") == str(tmp_path / "kubeconfig")
    assert job == content["scrape_configs"][0]
