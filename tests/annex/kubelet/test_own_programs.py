"""A program of a user's own on process nodes: its code from the job, under our record and guard."""

import json
import logging
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from megatron_eks.catalog.workloads import WITH_PODS, WORKLOADS, whole
from megatron_eks.kubernetes import manifests
from megatron_eks.kubernetes.client import Object, wait_for
from megatron_eks.project import ROOT
from megatron_eks.synthesis import synthesise_manifests
from tests.annex import jobs
from tests.annex.kubelet import runs
from tests.programs.s3_world import ACCESS

pytestmark = [pytest.mark.control_plane, pytest.mark.programs]

_LOG = logging.getLogger(__name__)

_SECONDS = 240
_PLACE = {"LocationConstraint": "us-east-2"}
_EXAMPLES = ROOT / "examples" / "own-script" / "jobs"


def write(
    folder: Path,
    name: str,
    *args: str,
    example: str = "ddp",
    platform: str = "pytorchjob",
    **changes: object,
) -> None:
    """Write the default cluster and a job of the example, changed, for the pool of these nodes."""
    shutil.copytree(_EXAMPLES / example, folder / "jobs" / example)
    cluster = (ROOT / "cluster.yaml").read_text()
    (folder / "cluster.yaml").write_text(f"{cluster}platform: {{workload: {platform}}}\n")
    value = yaml.safe_load((_EXAMPLES / f"{example}.yaml").read_text())
    saved = f"/shared/checkpoints/{name}"
    value |= {"name": name, "pool": "p4d", "gpus_per_node": 1, **changes}
    value["program"]["args"] = [f"--directory={saved}", *args]
    value["checkpoint"]["directory"] = saved
    (folder / "jobs" / "own.yaml").write_text(yaml.safe_dump(value))


@pytest.fixture
def run(submit, tmp_path) -> Callable[..., Object]:
    """Return a function that submits such a job."""

    def begin(name: str, *args: str, **changes: Any) -> Object:
        write(tmp_path, name, *args, **changes)
        synthesise_manifests(tmp_path / "cluster.yaml", tmp_path / "dist")
        objects = manifests.read(tmp_path / "dist" / "jobs")
        (job,) = (whole(each, objects) for each in objects if each["kind"] in WORKLOADS)
        runs.hurry(job)
        for each in (*(each for each in objects if each["kind"] not in WITH_PODS), job):
            if each["kind"] not in WORKLOADS or each is job:
                submit(each)
        return job

    return begin


def record(cluster, name: str, start: int, rank: int) -> str:
    """Return what a rank has printed by now."""
    file: Path = cluster.shared() / "logs" / name / f"{start:04}" / f"rank-{rank:05}.log"
    return file.read_text() if file.exists() else ""


@pytest.mark.parametrize("image", [pytest.param("fsdp", marks=pytest.mark.long), runs.OWN])
def test_a_script_runs_on_two_nodes(cluster, run, image, tmp_path):
    """In our image, and in one that has torch and none of our programs."""
    name = "own-ddp" if image == "fsdp" else "own-image"
    job = run(name, "--steps=60", "--save-every=10", image=image)
    jobs.wait_for_condition(cluster.client, job, "Succeeded")
    for rank in range(2):
        text = record(cluster, name, 1, rank)
        assert f"rank {rank} of 2 starts at step 0" in text
    # The job ends with its first rank, and may take the others along before they say that they do.
    assert "record: ended with exit code 0" in record(cluster, name, 1, 0)
    assert "step 60/60, loss:" in record(cluster, name, 1, 0)
    kept = [each.name for each in (cluster.shared() / "checkpoints" / name).iterdir()]
    assert sorted(kept) == ["step-50", "step-60"]
    # The image with our programs, as this cluster has them.
    registry, digest = "111122223333.dkr.ecr.us-east-2.amazonaws.com", runs.OWN.partition("@")[2]
    ours = f"{registry}/{runs.MEGATRON}@{digest}"
    outputs = {"techpulse-Images": {"MegatronImage": ours}}
    (tmp_path / "outputs.json").write_text(json.dumps(outputs))
    listed = command(cluster, tmp_path, "ckpt", "ls", name)
    assert listed.returncode == 0, listed.stderr
    assert [line.split()[0] for line in listed.stdout.splitlines()[1:3]] == ["50", "60"]
    assert "newest whole: step-60, shared" in listed.stdout


def command(cluster, folder: Path, *words: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of meks on the cluster file of a folder."""
    return subprocess.run(  # noqa: S603 -- our own command
        [sys.executable, "-m", "megatron_eks", *words, "--kubeconfig", cluster.plane.kubeconfig],
        cwd=folder,
        env={**os.environ, **ACCESS, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )


def test_what_an_image_lacks_is_told_before_a_job_takes_nodes(cluster, tmp_path):
    """On one pod, by name; what this leaves behind goes with the pod."""
    write(tmp_path, "own-image-check")
    cluster.shared()
    good = command(cluster, tmp_path, "verify", "--image", runs.OWN)
    assert good.returncode == 0, good.stderr
    versions = r"python 3\.\d+\.\d+, torch 2\S+, boto3 \S+"
    assert re.fullmatch(rf"{runs.OWN}: {versions}; jobs can run in it\n", good.stdout)
    assert "warning NCCL plugin: no libnccl" in good.stderr
    bare = runs.OWN.replace("mine", "bare")
    bad = command(cluster, tmp_path, "verify", "--image", bare, "-o", "json")
    assert bad.returncode == 4, bad.stderr
    told = json.loads(bad.stdout)
    assert (told["passed"], told["versions"]["torch"]) == (False, None)
    assert "error torchrun: no such program in the image - install torch" in bad.stderr
    assert command(cluster, tmp_path, "verify", "--image", "mine:latest").returncode == 2

    def left() -> list[str]:
        maps = cluster.client.list("v1", "ConfigMap", "megatron-workshop")
        names = [each["metadata"]["name"] for each in maps]
        return [name for name in names if name.endswith("-files")]

    wait_for("nothing to be left", lambda: not left(), 60)


def test_a_large_program_is_sent_once_and_fetched_by_each_node(cluster, s3_server, tmp_path):
    """By `meks submit`, to the cluster's bucket; each pod unpacks what it has compared."""
    write(tmp_path, "own-large", "--steps=20", "--save-every=10", image="fsdp")
    (tmp_path / "jobs" / "ddp" / "table.txt").write_bytes(random.Random(1).randbytes(900_000))  # noqa: S311 -- no secret
    (tmp_path / "outputs.json").write_text('{"techpulse-Storage": {"BucketName": "own-code"}}')
    seen = set()
    client, port = s3_server
    client.create_bucket(Bucket="own-code", CreateBucketConfiguration=_PLACE)

    endpoint = {"AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}"}

    def meks(*words: str) -> None:
        done = command(cluster, tmp_path, *words, **endpoint)
        assert done.returncode == 0, done.stderr

    for wait in (["--wait"], []):
        meks("submit", "own-large", "--preview", *wait)
        (sent,) = client.list_objects_v2(Bucket="own-code")["Contents"]
        assert sent["Key"].startswith("data/code/")
        seen.add(sent["LastModified"])
        meks("cancel", "own-large", "--yes")
    for rank in range(2):
        assert f"rank {rank} of 2 starts at step 0" in record(cluster, "own-large", 1, rank)
    assert len(seen) == 1


@pytest.mark.long
@pytest.mark.parametrize("kind", jobs.KINDS)
@pytest.mark.parametrize("lost", ["rank", "pod", "node"])
def test_who_loses_one_rank_restarts_all_from_the_newest_checkpoint(
    cluster, run, request, kind, lost
):
    """As with the programs of this project; nothing in the script knows of it."""
    if kind != "PyTorchJob":
        request.getfixturevalue("other_kinds")
    if lost == "node":
        request.getfixturevalue("as_on_eks")
    name = f"own-{lost}-{kind.lower()}"
    # Whose platform has JobSets too.
    job = run(
        name,
        "--steps=1000000",
        "--save-every=20",
        platform="trainjob",
        runtime={"workload": kind.lower()},
    )
    wait_for("steps", lambda: "step 60/" in "".join(runs.starts(cluster, name)), _SECONDS)
    _, worker = jobs.pods_of(cluster.client, job)
    before = len(runs.starts(cluster, name))
    cluster.lose(lost, worker, "train.py")
    began = time.monotonic()

    def again() -> str:
        text = "".join(runs.starts(cluster, name)[before:]).rpartition("starts at step ")[2]
        return text if "\nstep " in text else ""

    # A step of one rank is one of all, as gradients are everybody's mean.
    text = wait_for("steps of another start", again, _SECONDS)
    assert int(text.split()[0]) >= 60
    _LOG.info("%s, a %s lost: %.0f s", kind, lost, time.monotonic() - began)


@pytest.mark.long
def test_the_trainer_of_hugging_face_goes_on_from_its_checkpoint(cluster, run):
    """With no line for that in its job but the file that a complete folder has."""
    secret = {"apiVersion": "v1", "kind": "Secret", "stringData": {"token": "none"}}
    named = {"metadata": {"name": "wandb", "namespace": "megatron-workshop"}}
    cluster.client.apply({**secret, **named})
    job = run("own-trainer", "--steps=75", example="trainer")
    saved = cluster.shared() / "checkpoints" / "own-trainer"
    complete = saved / "checkpoint-25" / "trainer_state.json"
    wait_for("a checkpoint", complete.exists, _SECONDS)
    _, worker = jobs.pods_of(cluster.client, job)
    cluster.lose("rank", worker, "train.py")
    jobs.wait_for_condition(cluster.client, job, "Succeeded", _SECONDS)
    first, *_, last = runs.starts(cluster, "own-trainer")
    epochs = [float(re.findall(r"'epoch': '?([\d.]+)", text)[0]) for text in (first, last)]
    # Two ranks take eight sequences of 4,096 each, and tell of every fifth step.
    assert epochs == [pytest.approx(step * 16 / 4096, abs=0.001) for step in (5, epochs[1] * 256)]
    assert epochs[1] * 256 >= 30
    assert sorted(each.name for each in saved.iterdir()) == ["checkpoint-50", "checkpoint-75"]


@pytest.fixture
def cordon(cluster) -> Iterator[Callable[..., None]]:
    """Return a function that closes all nodes to new pods, or opens them."""

    def call(*, closed: bool) -> None:
        for node in cluster.client.list("v1", "Node"):
            metadata = {"name": node["metadata"]["name"]}
            named = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
            cluster.client.apply({**named, "spec": {"unschedulable": closed}})

    yield call
    call(closed=False)


@pytest.mark.long
def test_an_elastic_job_goes_on_with_the_nodes_that_are_left(cluster, run, cordon):
    """With one of two while no node is there for the other, and with both again afterwards."""
    runtime = {"rendezvous": "c10d", "elastic": {"min_nodes": 1, "max_nodes": 2}}
    job = run("own-elastic", "--steps=1000000", "--save-every=20", runtime=runtime)

    def last(words: str) -> int:
        files = (cluster.shared() / "logs" / "own-elastic").glob("*/rank-*.log")
        text = "".join(file.read_text() for file in files)
        return max(map(int, re.findall(rf"{words} (\d+)", text)), default=-1)

    wait_for("steps", lambda: last("\nstep") > 60, _SECONDS)
    assert last("of 2 starts at step") == 0
    cordon(closed=True)
    cluster.lose("pod", jobs.pods_of(cluster.client, job)[1], "train.py")
    alone = wait_for("steps of one", lambda: max(0, last("of 1 starts at step")), _SECONDS)
    assert alone >= 60
    wait_for("its steps", lambda: last("\nstep") > alone + 20, _SECONDS)
    cordon(closed=False)
    both = wait_for("steps of both", lambda: max(0, last("of 2 starts at step")), _SECONDS)
    assert both > alone
    wait_for("their steps", lambda: last("\nstep") > both + 20, _SECONDS)
