"""A job of a user's program: what is refused of it, what its pods run, and what goes with it."""

import io
import json
import random
import re
import tarfile
import zipfile
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
import yaml

from megatron_eks import shipping
from megatron_eks.catalog.program_places import UNPACKED, ZIP
from megatron_eks.config.errors import ConfigError
from megatron_eks.kubernetes.manifests import read_file
from megatron_eks.ops.jobs.fit import secrets_of
from megatron_eks.ops.jobs.rendering import Wish, render
from megatron_eks.ops.planning.megatron import Megatron
from megatron_eks.plan.jobs.job import ARCHIVE, JobPlan
from megatron_eks.project import ROOT, check_files, load_project
from megatron_eks.synthesis import synthesise_manifests
from tests import examples
from tests.charts import rendered

TODAY = date(2026, 11, 28)
OWN = "123456789012.dkr.ecr.us-west-2.amazonaws.com/mine@sha256:" + "a" * 64


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of the example, with one of its jobs."""
    examples.copy("own-script", tmp_path)
    for name in ("trainer", "titan"):
        (tmp_path / "jobs" / f"{name}.yaml").unlink()
    return tmp_path


def edit(folder: Path, **changes: object) -> None:
    """Change keys of the job file; None removes one."""
    file = folder / "jobs" / "ddp.yaml"
    value = {**yaml.safe_load(file.read_text()), **changes}
    file.write_text(yaml.safe_dump({key: each for key, each in value.items() if each is not None}))


def found(folder: Path, **changes: object) -> list[str]:
    """Return level, code, path and words of what is said of the job."""
    edit(folder, **changes)
    jobs = [folder / "jobs" / "ddp.yaml"]
    files = check_files(folder / "cluster.yaml", jobs, TODAY, code=True)
    return [
        f"{each.level} {each.code} {each.found}"
        for each in files.findings
        if each.file.endswith("ddp.yaml")
    ]


def planned(folder: Path, **changes: object) -> JobPlan:
    """Plan the job."""
    edit(folder, **changes)
    (job,) = load_project(folder / "cluster.yaml", TODAY).jobs
    return job


def test_the_example_is_right(folder):
    """Nothing is said of it."""
    assert found(folder) == []


MISTAKES = yaml.safe_load(Path(__file__).with_name("torchrun.yaml").read_text())


@pytest.mark.parametrize(("changes", "expected"), [each.values() for each in MISTAKES])
def test_mistakes(folder, changes, expected):
    """Each is told before a node is rented."""
    (folder / "jobs" / "other").mkdir()
    assert any(line.startswith(expected) for line in found(folder, **changes)), expected


def test_a_value_for_secret_env_is_never_repeated(folder):
    """Who writes the secret itself must not find it in a log of CI."""
    lines = found(folder, runtime={"secret_env": {"WANDB_API_KEY": "0123456789abcdef"}})
    assert lines
    assert not any("0123456789" in line for line in lines)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # A Python since 3.12 reads it.
        ("print(f'{'a'}' 1)\n", "warning MEKS-0343 train.py:1: "),
        ("def f(:\n", "error MEKS-0343 train.py:1: invalid syntax"),
        ("x = 1\nTOKEN = 'hf_" + "a" * 34 + "'\n", "error MEKS-0253 train.py:2 holds a token"),
    ],
)
def test_what_ends_every_rank_is_found_in_the_script(folder, text, expected):
    """With its line."""
    (folder / "jobs" / "ddp" / "train.py").write_text(text)
    assert any(line.startswith(expected) for line in found(folder))


def test_a_module_beside_the_script_only_warns(folder):
    """It may be a template, or of Python 2."""
    (folder / "jobs" / "ddp" / "old.py").write_text("print 1\n")
    (line,) = found(folder)
    assert line.startswith("warning MEKS-0343 old.py:1")


def test_ranks_run_the_script_where_its_folder_is(folder):
    """After the record, what prepares the node, and torchrun."""
    job = planned(folder)
    assert job.launcher[:3] == ("python3", UNPACKED, "record")
    assert (*job.launcher[5:], *job.program) == (
        *("python3", "-m", "megatron_eks.programs.torchrun_node"),
        *("--code=/etc/megatron-eks/code.tar.gz", "--directory=/tmp/code"),
        *("--checkpoints=/shared/checkpoints/ddp", "--complete-marker=complete", "--keep-last=2"),
        *("--", "torchrun", "-m", "megatron_eks.programs.torchrun_rank"),
    )
    assert job.args[-5:] == ("--directory=/tmp/code", "--script=train.py", "--", "--steps", "200")
    assert "--heartbeats" in job.args
    assert job.estimated == "unknown without model and training"
    assert job.restarts


@pytest.mark.parametrize(
    ("program", "code", "expected"),
    [
        ({"module": "torch.run"}, None, ("--module=torch.run", "--")),
        (
            {"module": "train", "args": ["-x"]},
            {"path": "ddp"},
            ("--directory=/tmp/code", "--module=train", "--", "-x"),
        ),
        (
            {"script": "ddp/train.py"},
            {"path": "."},
            ("--directory=/tmp/code", "--script=ddp/train.py", "--"),
        ),
        ({"command": ["/opt/run", "-x"]}, None, ("--", "/opt/run", "-x")),
    ],
)
def test_a_module_and_a_command_run_as_well(folder, program, code, expected):
    """From the image alone, or from a folder that goes with the job."""
    job = planned(folder, program=program, code=code)
    assert job.args[-len(expected) :] == expected
    assert (ARCHIVE in job.files) is ("--directory=/tmp/code" in expected)


def test_the_pod_has_what_the_file_asks_for(folder):
    """Cores, memory with /dev/shm inside it, and variables from Secrets."""
    named = {"WANDB_API_KEY": {"secret": "wandb", "key": "token"}}
    job = planned(folder, runtime={"cpu": 6, "memory_gib": 20, "secret_env": named})
    assert (job.resources.cpu_millis, job.resources.memory_mib) == (6000, 20480)
    assert job.resources.shm_mib == 10240
    (entry,) = job.secret_entries
    assert (job.secret_env, entry.key) == ({"WANDB_API_KEY": entry}, "token")
    workload = rendered.only(rendered.jobs(job), "PyTorchJob")
    (pod, *_) = rendered.pods([workload])
    assert [*secrets_of(pod.spec)] == ["wandb"]


@pytest.mark.parametrize(
    ("training", "kind"),
    [
        ({"train_batch_size": 1, "max_steps": 5}, "fsdp"),
        ({"global_batch_size": 8, "train_iters": 5, "learning_rate": 1e-4}, "megatron"),
    ],
)
def test_a_prediction_is_that_of_a_known_kind(folder, training, kind):
    """Whose keys the batch has."""
    job = planned(folder, model="llama-3.2-1b", training=training)
    assert job.estimated == f"as for kind {kind}"
    assert job.training is not None
    assert job.training.memory.per_gpu_bytes > 0


def test_the_code_is_the_same_bytes_until_it_changes(folder):
    """Whatever times and order the file system has."""
    before = planned(folder).files[ARCHIVE]
    script = folder / "jobs" / "ddp" / "train.py"
    script.touch()
    (folder / "jobs" / "ddp" / "data.pt").write_bytes(b"x")
    assert planned(folder).files[ARCHIVE] == before
    script.write_text(script.read_text() + "\n")
    after = planned(folder).files[ARCHIVE]
    assert after != before
    assert isinstance(after, bytes)
    with tarfile.open(fileobj=io.BytesIO(after)) as tar:
        assert [(each.name, each.mtime, each.uid) for each in tar] == [("train.py", 0, 0)]


@pytest.fixture
def large(folder):
    """Return the folder with a program that is too large for its job's own file."""
    for index in range(2):
        noise = random.Random(index).randbytes(500_000)  # noqa: S311 -- no secret
        (folder / "jobs" / "ddp" / f"part{index}.txt").write_bytes(noise)
    return folder


def deployed(folder: Path) -> None:
    """Write what a deployment does, as far as it matters here."""
    outputs = {"own-script-Storage": {"BucketName": "own-data"}}
    (folder / "outputs.json").write_text(json.dumps(outputs))


def said_of_size(folder: Path) -> list[str]:
    """Return what is to be done about the size of the program."""
    project = load_project(folder / "cluster.yaml", TODAY, code=True)
    return [each.remedy for each in project.warnings if each.code == "MEKS-0345"]


def test_a_large_folder_goes_through_the_bucket(large):
    """By its content: a changed script is elsewhere, an unchanged one is found again."""
    deployed(large)
    files = planned(large).files
    assert [*files] == ["code.tar.gz.s3"]
    uri = str(files["code.tar.gz.s3"])
    assert re.fullmatch(r"s3://own-data/data/code/[0-9a-f]{64}\.tar\.gz", uri)
    (large / "jobs" / "ddp" / "train.py").touch()
    assert planned(large).files == files
    (large / "jobs" / "ddp" / "train.py").write_text("print()\n")
    assert planned(large).files != files
    assert said_of_size(large) == []


def test_without_a_bucket_it_is_said_what_to_do(large):
    """A preview is written all the same; the largest files are named."""
    (said,) = said_of_size(large)
    assert said.startswith("run: meks deploy, then meks outputs; or exclude")
    assert "(largest: part0.txt, part1.txt" in said


def test_what_no_pod_would_unpack_is_refused(large, monkeypatch):
    """With the names of its largest files."""
    monkeypatch.setattr(shipping, "MOST_SENT_BYTES", 800 * 1024)
    (line,) = found(large)
    assert line.startswith("error MEKS-0345")


def test_a_command_that_only_reads_does_not_read_the_program(folder, monkeypatch):
    """It may be large, or on a slow disk; who renders, asks for the files."""
    monkeypatch.setattr(shipping, "read_folder", lambda *_: pytest.fail("the folder is read"))
    job = planned(folder)
    with pytest.raises(pytest.fail.Exception, match="the folder is read"):
        len(job.files)
    with pytest.raises(pytest.fail.Exception, match="the folder is read"):
        found(folder)


def test_an_image_of_the_user_s_gets_the_programs(folder):
    """As one zip, the same for every job, that starts the record; ours have them."""
    job = planned(folder, image=OWN)
    assert job.launcher[:3] == ("python3", f"/etc/megatron-eks/{ZIP}", "record")
    content = job.files[ZIP]
    assert isinstance(content, bytes)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = set(archive.namelist())
    assert {"__main__.py", "megatron_eks/programs/record.py"} <= names
    assert sum(len(each) for each in job.files.values()) < 2**20
    assert ZIP not in planned(folder, image="fsdp").files


def test_a_link_out_of_the_folder_is_no_code(folder):
    """Nobody knows what it stands for elsewhere."""
    (folder / "jobs" / "ddp" / "helper.py").symlink_to(ROOT / "app.py")
    (line,) = found(folder)
    assert line.startswith("warning MEKS-0344 helper.py (a link to elsewhere)")
    (folder / "jobs" / "ddp" / "train.py").unlink()
    (folder / "jobs" / "ddp" / "train.py").symlink_to(ROOT / "app.py")
    with pytest.raises(ConfigError, match="leads out of"):
        len(planned(folder).files)
    assert any("leads out of" in line for line in found(folder))


@pytest.mark.parametrize("path", [None, "."])
def test_submit_renders_the_same_job_as_synth(folder, path):
    """Though it writes the job files, with what the command line set, into a folder of its own."""
    edit(folder, code=path and {"path": path, "exclude": ["*.md"]})
    synthesise_manifests(folder / "cluster.yaml", folder / "dist", quiet=True)
    written = read_file(folder / "dist" / "jobs" / "ddp.k8s.yaml")
    wish = Wish(folder / "cluster.yaml", "ddp", {}, datetime.now(tz=UTC).date())
    submitted = render(wish, Megatron(python=None))
    for name in ("megatron-eks/spec-hash", "megatron-eks/job"):
        del submitted.workload["metadata"]["annotations"][name]
    assert [*submitted.beside, submitted.workload] == written
