"""`meks` as people run it: exit codes, streams, and no traceback whatever the input."""

import json
import os
import shutil
from datetime import date
from pathlib import Path

import pytest
import yaml

from megatron_eks.config.errors import ConfigError
from megatron_eks.folders import clusters_in
from megatron_eks.ops import local
from megatron_eks.synthesis import SynthesisError, synthesise_manifests
from tests import command

ROOT = Path(__file__).parents[2]
CLUSTER = (ROOT / "cluster.yaml").read_text()
JOB = (ROOT / "jobs" / "megatron-cpt-techpulse.yaml").read_text()


def meks(*arguments: str, cwd: Path = ROOT) -> command.Done:
    """Run a command on 80 columns, and with nothing else of this environment."""
    return command.meks(*arguments, cwd=cwd, env={"PATH": "/usr/bin:/bin", "COLUMNS": "80"})


@pytest.fixture
def project(tmp_path):
    """Copy the shipped cluster and job."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "jobs" / "job.yaml").write_text(JOB)
    return tmp_path


def test_validate_accepts_the_shipped_project():
    """Documentation values are warnings, so the exit code is 0."""
    done = meks("validate")
    assert done.returncode == 0
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [["warning", "MEKS-0212"]] * 2
    assert done.stderr == "cluster.yaml and 11 job files: 0 errors, 2 warnings\n"


def test_validate_reports_both_files_at_once(project):
    """A mistake in the cluster file does not hide one in a job file."""
    (project / "cluster.yaml").write_text(CLUSTER.replace("capacity_gib: 1200", "capacity_gib: 7"))
    (project / "jobs" / "job.yaml").write_text(JOB.replace("tensor: 4", "tensor: 3"))
    done = meks("validate", cwd=project)
    assert done.returncode == 2
    assert "error MEKS-0210 cluster.yaml:19 storage.lustre.capacity_gib: " in done.stdout
    assert "error MEKS-0311 jobs/job.yaml:11 parallelism.tensor: " in done.stdout


def test_validate_takes_job_files_with_their_cluster(project, tmp_path):
    """A job file elsewhere is checked against the cluster that is named."""
    other = tmp_path / "other.yaml"
    other.write_text(JOB.replace("nodes: 2", "nodes: 4"))
    done = meks("validate", str(other), "--cluster", str(project / "cluster.yaml"), "-o", "json")
    assert done.returncode == 2
    errors = [row for row in json.loads(done.stdout) if row["level"] == "error"]
    assert [(row["code"], row["path"], row["line"]) for row in errors] == [
        ("MEKS-0302", "nodes", 7)
    ]


def copied(name, directory, uri):
    """Return the shipped job with another name, directory and prefix for copies."""
    text = JOB.replace("name: megatron-cpt-techpulse", f"name: {name}")
    text = text.replace("directory: /shared/checkpoints/techpulse-cpt", f"directory: {directory}")
    return text.replace("  interval: 100", f"  interval: 100\n  s3_uri: {uri}")


def test_plan_says_what_jobs_reach_in_s3(project):
    """Reading a bucket of somebody else's is nothing to be found out in a template."""
    text = copied("one", "/shared/checkpoints/a", "s3://ours/run")
    (project / "jobs" / "job.yaml").write_text(text)
    fetch = "schema_version: 1\nkind: fetch\nname: f\ns3_uri: s3://theirs/base\n"
    (project / "jobs" / "fetch.yaml").write_text(f"{fetch}directory: /shared/data/base\n")
    lines = meks("plan", cwd=project).stdout.splitlines()
    (note,) = [line for line in lines if "JobRoleArn" in line]
    assert note.startswith(
        "To see to: the jobs' role (JobRoleArn of techpulse-Storage) may use ours, theirs; "
    )
    made = json.loads(meks("plan", "-o", "json", cwd=project).stdout)["cluster"]
    assert made["data_access"] == {"reads": ["s3://theirs/base"], "writes": ["s3://ours/run"]}


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe\x00", b"a: [", b"- 1", b"kind: megatron", b"schema_version: 2\n", b"\x00"],
)
def test_broken_files_give_findings_not_tracebacks(project, content):
    """Any content gives lines of the error contract and exit code 2."""
    (project / "cluster.yaml").write_bytes(content)
    for name in ("validate", "plan"):
        done = meks(name, cwd=project)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr + done.stdout
        assert all(line.split()[0] in {"error", "warning"} for line in done.stdout.splitlines())
        assert "error MEKS-" in done.stdout


def test_a_plan_says_how_many_jobs_fit(project):
    """One job's error is no other's, and a job that nobody has is told from one mistyped."""
    (project / "jobs" / "wide.yaml").write_text(
        JOB.replace("name: megatron-cpt-techpulse", "name: wide").replace("tensor: 4", "tensor: 3")
    )
    done = meks("plan", cwd=project)
    assert (done.returncode, done.stderr.split(":")[0]) == (2, "1 of 2 jobs fit")
    assert "jobs/wide.yaml" in done.stdout
    (project / "jobs" / "wide.yaml").unlink()
    done = meks("plan", "megatron-cpt-techplus", cwd=project)
    assert done.returncode == 3
    assert "did you mean 'megatron-cpt-techpulse'?" in done.stderr


def test_a_missing_file_is_a_finding(project):
    """The place and the remedy, not an exception."""
    done = meks("plan", "--cluster", "nowhere.yaml", cwd=project)
    assert done.returncode == 2
    assert done.stdout == (
        "error MEKS-0001 nowhere.yaml:1 .: no such file - "
        "name a cluster file with --cluster or CLUSTER_CONFIG, or write one: meks init\n"
    )


def test_plan_as_table_fits_80_columns():
    """Tables are read in terminals of 80 columns, and the outcome stands first."""
    done = meks("plan")
    assert done.returncode == 0
    assert [line.split()[:4] for line in done.stdout.splitlines()[2:6]] == [
        ["Jobs", "11", "of", "11"],
        ["Idle", "1.38", "USD", "an"],
        ["Full", "45.30", "USD", "an"],
        ["Longest", "bridge-cpt-techpulse:", "5.6", "d,"],
    ]
    pages = [done.stdout, meks("plan", "megatron-gpt-7b").stdout]
    assert max(len(line) for page in pages for line in page.splitlines()) <= 80
    for expected, page in zip(("16 x A100-SXM4-40GB", " 36.4\n"), pages, strict=True):
        assert expected in page
    assert "warning MEKS-0009 outputs.json:1 .: no file system in the outputs" in done.stderr


def test_plan_as_json_has_the_contract_of_predictions():
    """Memory of each job by stage, in bytes, with the capacity beside it."""
    plan = json.loads(meks("plan", "-o", "json").stdout)
    (job,) = [each for each in plan["jobs"] if each["name"] == "megatron-cpt-techpulse"]
    assert (
        job["memory"]["per_gpu_bytes"] < job["memory"]["capacity_bytes"] == (40346 - 3072) * 1024**2
    )
    assert [stage["stage"] for stage in job["memory"]["stages"]] == [0]
    throughput = job["throughput"]
    assert throughput["low"] < throughput["tokens_per_second_per_gpu"] < throughput["high"]
    tokens = throughput["tokens_per_second_per_gpu"] * 16 * throughput["step_seconds"]
    assert round(tokens) == 512 * 4096
    assert 0.99 < job["goodput"]["low"] <= job["goodput"]["expected"] <= job["goodput"]["high"] < 1
    # Two p4d nodes at 21.957642 USD an hour for 5.6 days.
    assert job["cost"]["usd_per_hour"] == 43.915284
    assert job["cost"]["usd_low"] < job["cost"]["usd"] < job["cost"]["usd_high"]
    pool = plan["cluster"]["gpu_pools"][0]
    assert (pool["max_gpus"], pool["efa_interfaces_per_node"]) == (16, 4)
    assert plan["preview"] is True
    assert plan["cost"]["full_per_hour"] > plan["cost"]["idle_per_hour"]


def test_yaml_says_the_same_as_json():
    """Programs choose the form that they read."""
    for name in ("plan", "validate"):
        assert yaml.safe_load(meks(name, "-o", "yaml").stdout) == json.loads(
            meks(name, "-o", "json").stdout
        )


def test_an_unknown_price_is_said_to_be_unknown(project):
    """No price is better than a wrong one."""
    (project / "cluster.yaml").write_text(CLUSTER.replace("us-east-2", "ap-northeast-1"))
    done = meks("plan", cwd=project)
    assert done.returncode == 0
    assert "unknown" in done.stdout
    assert (
        json.loads(meks("plan", "-o", "json", cwd=project).stdout)["cost"]["full_per_hour"] is None
    )


def test_usage_errors_exit_with_2():
    """An unknown command is one, and a command that lacks its own."""
    done = meks("valdate")
    assert done.returncode == 2
    assert 'Did you mean "validate"?' in done.stderr
    done = meks("ckpt")
    assert (done.returncode, done.stdout) == (2, "")
    assert "meks ckpt ls" in done.stderr


def test_outputs_of_another_cluster_are_refused(project):
    """A file that a different cluster wrote would mount the wrong file system."""
    (project / "outputs.json").write_text(json.dumps({"other-Storage": {"LustreId": "fs-1"}}))
    done = meks("plan", cwd=project)
    assert done.returncode == 2
    assert "error MEKS-0007 outputs.json:1 other-Storage: " in done.stdout


@pytest.mark.parametrize("place", ["cluster.yaml", "jobs/pipe.yaml", "other.yaml"])
def test_a_pipe_holds_nobody_up(project, place):
    """Reading one waits for a writer; nobody may ever come."""
    (project / place).unlink(missing_ok=True)
    os.mkfifo(project / place)
    done = meks("validate", *(["other.yaml"] if place == "other.yaml" else []), cwd=project)
    assert done.returncode == 2
    assert f"error MEKS-0001 {place}:1 .: cannot be read: it is a pipe or a device" in done.stdout
    if place == "other.yaml":
        assert clusters_in(project) == {project / "cluster.yaml": "techpulse"}


def test_a_loop_of_links_is_a_finding(tmp_path):
    """Reading ends, whatever the file system holds."""
    (tmp_path / "cluster.yaml").symlink_to("other")
    (tmp_path / "other").symlink_to("cluster.yaml")
    for words in (["validate"], ["plan"], ["check", "cluster.yaml"]):
        done = meks(*words, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stdout.startswith("error MEKS-0001 cluster.yaml:1 ")


def test_the_same_job_named_twice_is_one_job(project):
    """Naming a file twice is no second job."""
    job = str(project / "jobs" / "job.yaml")
    assert meks("validate", job, job, cwd=project).returncode == 0


def test_a_local_cluster_is_not_built_for_a_wrong_file(project, tmp_path, monkeypatch):
    """What the file lacks is said at once, with its place, and nothing is compiled before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for file, found in (("other.yaml", "MEKS-0001"), ("cluster.yaml", "MEKS-0210")):
        (project / "cluster.yaml").write_text(
            CLUSTER.replace("capacity_gib: 1200", "capacity_gib: 7")
        )
        with pytest.raises(ConfigError) as raised:
            local.run("up", project / file, date(2026, 7, 1), "table")
        assert found in {each.code for each in raised.value.findings}


def test_a_file_of_the_usual_name_is_a_cluster_file(tmp_path):
    """However few of its keys are right: it is not told that a job's kind is missing."""
    (tmp_path / "cluster.yaml").write_text("nmae: demo\n")
    done = meks("validate", str(tmp_path / "cluster.yaml"))
    assert "unknown key 'nmae' - did you mean 'name'?" in done.stdout
    assert "kind" not in done.stdout


def test_words_too_many_are_shown_but_for_a_secret():
    """One of them may be the value."""
    done = meks("status", "job", "other", "'")
    assert done.returncode == 2
    assert "unrecognized arguments: other" in done.stderr
    done = meks("secret", "set", "hugging-face", "hf_0123456789")
    assert done.returncode == 2
    assert "0123456789" not in done.stdout + done.stderr
    assert "make a new one" in done.stderr


def test_what_is_behind_two_dashes_is_no_option_of_ours(tmp_path):
    """The file that says how to reach the cluster is looked for, and it is not there."""
    nowhere = tmp_path / "kubeconfig"
    done = meks("shell", "job", "--kubeconfig", str(nowhere), "--", "ls", "--help")
    assert done.returncode == 2
    assert str(nowhere) in done.stderr


def test_jobs_are_in_a_folder(project):
    """A file of that name holds none."""
    shutil.rmtree(project / "jobs")
    (project / "jobs").write_text("")
    done = meks("validate", cwd=project)
    assert done.returncode == 2
    assert " jobs:1 " in done.stdout


def test_a_synthesis_that_fails_says_why_once(project):
    """Templates and manifests have one cause."""
    (project / "cluster.yaml").write_text(CLUSTER.replace("capacity_gib: 1200", "capacity_gib: 7"))
    done = meks("synth", cwd=project)
    assert done.returncode == 2
    assert done.stderr.count("MEKS-0210") == 1
    with pytest.raises(SynthesisError):
        synthesise_manifests(project / "cluster.yaml", project / "dist", quiet=True)
