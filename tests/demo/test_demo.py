"""`make demo` from its first line to its last, kept once, and interrupted once."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import boto3
import pytest

from megatron_eks.demo import curve, jobs
from megatron_eks.demo.story import REPORT
from megatron_eks.kubernetes import kubeconfig
from megatron_eks.kubernetes.client import wait_for
from megatron_eks.kubernetes.manifests import read_file
from megatron_eks.localcloud.kubernetes.build import cache_folder
from megatron_eks.project import ROOT
from tests.integration.test_tutorial import pattern, shown

pytestmark = [pytest.mark.control_plane, pytest.mark.programs]

_SECONDS = 1200
_NAMESPACE = "megatron-workshop"


def demo(cache: Path, *words: str, **more) -> "subprocess.Popen[str]":
    """Start the command behind `make demo`, with a cache of its own."""
    return subprocess.Popen(  # noqa: S603 -- our own command
        [sys.executable, "-m", "megatron_eks.demo", *words],
        cwd=ROOT,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **more,
    )


def cache_of(programs, folder: Path) -> Path:
    """Return a cache with the built programs and nothing else."""
    cache_folder({"XDG_CACHE_HOME": str(folder)}).mkdir()
    (cache_folder({"XDG_CACHE_HOME": str(folder)}) / "kubernetes").symlink_to(
        programs["etcd"].parents[1]
    )
    return folder


def left(cache: Path) -> list[str]:
    """Return the command lines of processes that run out of a cache, or write into it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if any(str(cache) in word for word in words) and entry.name != str(os.getpid()):
                found.append(" ".join(words))
    return found


@pytest.fixture(scope="module")
def cache(programs, tmp_path_factory):
    """Return the cache of the demo that is kept."""
    return cache_of(programs, tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="module")
def kept(cache):
    """Run the demo once, and return what it printed; it is ended after the tests."""
    process = demo(cache, "--keep")
    try:
        out, _ = process.communicate(timeout=_SECONDS)
        assert process.returncode == 0, out
        yield out
    finally:
        process.terminate()
        process.wait(_SECONDS)
        down = demo(cache, "--down")
        said, _ = down.communicate(timeout=_SECONDS)
        assert (down.returncode, left(cache)) == (0, []), said
        assert not (cache_folder({"XDG_CACHE_HOME": str(cache)}) / "demo").exists()


@pytest.fixture(scope="module")
def environment(kept):
    """Return the variables of the shell that the demo names."""
    (file,) = re.findall(r"^bash --init-file (\S+)$", kept, flags=re.MULTILINE)
    exports = Path(file).read_text()
    return dict(re.findall(r"^export (\w+)='?(.*?)'?$", exports, flags=re.MULTILINE))


@pytest.fixture(scope="module")
def client(environment):
    """Return a client by the kubeconfig that the demo leaves, whose plugin asks the local AWS."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        config = kubeconfig.load([Path(environment["KUBECONFIG"])])
        found = kubeconfig.contexts(config)[config["current-context"]].client(60)
        yield found
        found.close()


def test_it_tells_each_step_within_eighty_columns(kept, environment):
    """In plain letters, as the README shows, and what it did and did not show."""
    told = kept.partition("It still runs.")[0]
    assert max(map(len, told.splitlines())) <= 80
    assert told.isascii()
    assert "\x1b" not in kept
    block = (ROOT / "README.md").read_text().partition("$ make demo\n")[2].partition("```")[0]
    lines = iter(told.splitlines())
    for line in shown(block):
        assert any(re.fullmatch(pattern(line), each) for each in lines), line
    assert "What it did not show" in told
    assert environment["AWS_ENDPOINT_URL"].startswith("http://127.0.0.1:")


def test_the_killed_run_continues_as_if_nothing_had_happened(kept, client, environment):
    """Each loss of both starts is the one of the same job that nobody disturbs."""
    folder = Path(environment["CLUSTER_CONFIG"]).parent
    (file,) = (folder / "dist" / "jobs").glob(f"{jobs.MEGATRON}.*")
    (manifest,) = (each for each in read_file(file) if each["kind"] == "PyTorchJob")
    name = "demo-undisturbed"
    text = json.dumps(jobs.on_cpus(manifest)).replace(jobs.MEGATRON, name)
    client.apply(json.loads(text))
    logs = next((folder / "shared").glob("*/logs"))

    def losses(job: str) -> list[curve.Losses]:
        found = sorted((logs / job).glob("*/rank-00001*.log"))
        return curve.starts("".join(log.read_text() for log in found))

    def whole() -> list[curve.Losses]:
        return [each for each in losses(name) if max(each) == jobs.ITERATIONS]

    (expected,) = wait_for("the undisturbed run", whole, 600)
    before, after = losses(jobs.MEGATRON)
    assert max(after) == jobs.ITERATIONS
    assert min(after) % jobs.INTERVAL == 1
    assert {each: expected[each] for each in before} == pytest.approx(before, abs=1e-6)
    again = curve.compare(expected, after)
    assert again.iterations == len(after)
    # Losses are printed with six digits after the point, and a mean is taken of two of them.
    assert again.difference < 1.5e-6
    assert f"from iteration {min(after)}" in kept


def test_it_ends_with_a_report_of_the_killed_run(kept):
    """Two starts or more, what ended the first, and that all of it succeeded."""
    assert f"dist/{REPORT.name}" in kept
    page = re.sub(r"<style>.*?</style>|<[^>]*>", " ", REPORT.read_text(), flags=re.DOTALL)
    for said in (jobs.MEGATRON, "Succeeded", f"{jobs.ITERATIONS} of {jobs.ITERATIONS}", "1: step"):
        assert said in page, said


def test_both_jobs_of_the_demo_have_succeeded(kept, client):
    """As the operator says it, and not the demo alone."""
    del kept
    for name in (jobs.MEGATRON, jobs.FSDP):
        job = client.get("kubeflow.org/v1", "PyTorchJob", name, _NAMESPACE)
        last = job["status"]["conditions"][-1]
        assert (last["type"], last["status"]) == ("Succeeded", "True")


def test_the_checkpoints_are_in_s3(environment):
    """For boto3 with the printed environment: the last one of each job, with its manifest."""
    s3 = boto3.client(
        "s3",
        region_name=environment["AWS_REGION"],
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
    )
    keys = [each["Key"] for each in s3.list_objects_v2(Bucket=jobs.BUCKET)["Contents"]]
    for name, last in ((jobs.MEGATRON, jobs.ITERATIONS), (jobs.FSDP, jobs.STEPS)):
        assert f"{name}/iter_{last:07d}/manifest.json" in keys


def test_meks_works_in_the_printed_environment(environment):
    """Its kubeconfig asks the local AWS for a token."""
    done = subprocess.run(
        [sys.executable, "-m", "megatron_eks", "status"],
        cwd=ROOT,
        env={**os.environ, **environment, "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert re.search(rf"^{jobs.MEGATRON} .*Succeeded", done.stdout, flags=re.MULTILINE)


def test_a_second_demo_does_not_disturb_the_kept_one(kept, cache):
    """It says how to end that one."""
    del kept
    process = demo(cache)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "an earlier one still runs - end it: make demo ARGS=--down" in out


@pytest.mark.long
def test_an_interrupted_demo_leaves_nothing(programs, tmp_path):
    """Ctrl-C while cdk deploys: no process, no folder, and the exit code of an interruption."""
    cache = cache_of(programs, tmp_path)
    process = demo(cache, start_new_session=True)
    assert process.stdout is not None
    for line in process.stdout:
        if "Deploy the default cluster" in line:
            break
    wait_for("a command of cdk", lambda: [each for each in left(cache) if "cdk" in each], 300)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=_SECONDS)
    assert process.returncode == 130, out
    assert "interrupted; nothing of the demo is left running" in out
    assert left(cache) == []
    assert not (cache_folder({"XDG_CACHE_HOME": str(cache)}) / "demo").exists()
