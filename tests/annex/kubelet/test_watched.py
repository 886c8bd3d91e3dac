"""A real Prometheus watches real trainings that go wrong: each has its alarm, and no other."""

import contextlib
import json
import os
import signal
import subprocess
import threading
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
    """Return the jobs and names of alerts that fire."""
    found = ask(port, 'ALERTS{alertstate="firing"}')
    return [(labels.get("job"), labels["alertname"]) for labels, _ in found]


def training(cluster, name=NAME, program=None, interval=STEPS, **told):
    """Return a job of the real train_ddp on a CPU, with as much to do as nobody waits for.

    It takes half a node.
    """
    folder = f"/shared/{name}"
    run = Run(cluster.shared() / name, Path("python"), "train_ddp")
    run.config["training"] |= {"max_steps": STEPS, "validation_interval": STEPS, "log_interval": 1}
    run.config["checkpoint"] |= {"interval": interval, "keep_last": 1}
    text = json.dumps(run.config).replace(str(run.root), folder)
    (run.root / "config.json").write_text(text)
    plan = Plan(
        *(name, "ddp", METRICS_PORT),
        steps=STEPS,
        tokens=128,
        metrics_file=f"{folder}/checkpoints/metrics.jsonl",
        save_interval=interval,
        **told,
    )
    shipped = rendered.training_job(name="ddp-llama-3-2-1b")
    job = replace(shipped, name=name, nodes=1, files={}, metrics=plan, workload="pytorchjob")
    found = rendered.only(rendered.jobs(job), "PyTorchJob")
    found["spec"]["nprocPerNode"] = "1"
    (pod,) = jobs.pod_specs(found)
    (container,) = pod["containers"]
    for each in (container, *pod.get("initContainers", ())):
        each["image"] = runs.GANG
    for part in container["resources"].values():
        part |= {"nvidia.com/gpu": 4, "vpc.amazonaws.com/efa": 2, "memory": "400Gi"}
    container["resources"]["requests"]["cpu"] = "40"
    words = container["command"]
    words[3] = f"/shared/logs/{name}"
    container["args"] = ["--config", f"{folder}/config.json", "--device=cpu"]
    if program:
        (run.root / "program.py").write_text(program)
        words[words.index("megatron_eks.programs.train_ddp") - 1 :] = [f"{folder}/program.py"]
    return found


def test_a_job_that_stands_still_or_is_killed_is_told_of(cluster, submit, port):
    """By NoStep alone, within its time and no longer than it lasts; and by JobRestarted."""
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
    assert told == [(NAME, "NoStep")]
    assert line.startswith(f"alert NoStep: job {NAME} has made no step for ")
    assert f"meks status {NAME}" in line
    wait_for("its end", lambda: firing(port) == [], 120)
    os.kill(rank, signal.SIGKILL)
    assert wait_for("an alarm", lambda: firing(port), 240) == [(NAME, "JobRestarted")]


# The real trainer, whose data takes its time, and stops coming once a file is there.
HUNGRY = """
import sys, time
from pathlib import Path
from megatron_eks.programs.trainer import batches
from megatron_eks.programs.trainer.parallel import copy
from megatron_eks.programs.trainer.run import main
plain, stop = batches.Batches.next, Path(__file__).with_name("starve")
def next_one(self):
    time.sleep(0.5)
    while stop.exists():
        time.sleep(0.5)
    return plain(self)
batches.Batches.next = next_one
sys.exit(main("train_ddp", "", copy, sys.argv[1:]))
"""
# A program of a user's whose loss is lost, and that goes on; it tells TensorBoard alone.
LOST = """
import time
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter("/shared/lost/curves")
for step in range(1, 10**6):
    writer.add_scalar("train/loss", float("nan") if step > 30 else 1 / step, step)
    writer.flush()
    time.sleep(1)
"""
# Two alarms take a quarter of an hour, one of them after as long.
_BAD_DAY_SECONDS = 25 * 60


@pytest.mark.timeout(_BAD_DAY_SECONDS + 600)
def test_on_a_bad_day_each_job_has_its_own_alarm(cluster, submit, port):
    """One is starved of data, one sent NaN, one slowed, one cannot save; a fifth has none."""
    full = cluster.shared() / "full" / "checkpoints"
    full.mkdir(parents=True)
    words = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(full)]
    subprocess.run(words, check=True)  # noqa: S603 -- the tests of CI run as root
    expected = {
        "starved": "NoStep",
        "lost": "LossNotFinite",
        "slowed": "SlowerThanPlanned",
        "full": "CheckpointOld",
    }
    # The job of the test before has started again, and is gone.
    own = {(NAME, "JobRestarted"), (NAME, "JobEndedEarly")}
    fast = {"peak_seconds": 0.1, "step_seconds": 0.6}
    made = {
        "starved": submit(training(cluster, "starved", HUNGRY)),
        "lost": submit(training(cluster, "lost", LOST, event_files="/shared/lost")),
        "slowed": submit(training(cluster, "slowed", HUNGRY, step_seconds_high=1.2, **fast)),
        "full": submit(training(cluster, "full", HUNGRY, interval=5)),
        "healthy": submit(training(cluster, "healthy", HUNGRY, 50, step_seconds_high=30, **fast)),
    }
    over = threading.Event()
    try:
        wait_for(
            "steps of all", lambda: {x["job"] for x, y in steps(port) if y > 8} == {*made}, 400
        )
        assert set(firing(port)) - own <= {("lost", "LossNotFinite")}
        (starve := cluster.shared() / "starved" / "starve").touch()
        with contextlib.suppress(OSError), (full / "ballast").open("wb", buffering=0) as ballast:
            while True:
                ballast.write(bytes(65536))
        (pod,) = jobs.pods_of(cluster.client, made["slowed"])
        (rank,) = cluster.ranks_of(pod, "program.py")
        threading.Thread(target=slow_down, args=(rank, over), daemon=True).start()
        seen: dict[str, set[str]] = {}

        def all_told():
            for job, alarm in set(firing(port)) - own:
                seen.setdefault(job, set()).add(alarm)
            if "starved" in seen:
                # The watcher ends what stands still for ten minutes, which is another alarm.
                starve.unlink(missing_ok=True)
            return seen.keys() >= expected.keys() or any(
                alarms != {expected.get(job)} for job, alarms in seen.items()
            )

        with contextlib.suppress(TimeoutError):
            wait_for("an alarm of each", all_told, _BAD_DAY_SECONDS)
    finally:
        over.set()
        subprocess.run(["umount", "-l", str(full)], check=True)  # noqa: S603, S607 -- as above
    assert seen == {job: {alarm} for job, alarm in expected.items()}


def steps(port):
    """Return the jobs' newest steps."""
    return ask(port, "meks_step")


def slow_down(rank, over):
    """Let a process run a fifth of the time."""
    with contextlib.suppress(ProcessLookupError):
        while not over.wait(0.5):
            os.kill(rank, signal.SIGSTOP)
            over.wait(2)
            os.kill(rank, signal.SIGCONT)


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
