"""The AWS commands as people run them: exit codes, streams, help, and the real CDK."""

import os
import subprocess
import sys

import pytest

from tests.ops.aws.fakes import ROOT, project_in
from tests.ops.aws.quick_cdk import LOCAL_CLUSTER

COMMANDS = ("init", "deploy", "outputs", "build", "scale", "cleanup")
ARGUMENTS = {"scale": ("p4d", "1")}


def meks(*arguments, cwd=ROOT, environment=None):
    """Run the command in a process of its own, without a terminal."""
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "80",
        "HOME": str(cwd),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        **(environment or {}),
    }
    return subprocess.run(  # noqa: S603 -- our own command
        [sys.executable, "-m", "megatron_eks", *arguments],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_and_fits_a_terminal(command):
    """Eighty columns, no colour."""
    done = meks(command, "--help")
    assert done.returncode == 0
    assert f"examples:\n  meks {command}" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("command", COMMANDS[1:])
def test_documentation_values_are_refused(command):
    """Before AWS is asked for anything, with the command that replaces them."""
    done = meks(command, *ARGUMENTS.get(command, ()))
    assert done.returncode == 2
    errors = done.stdout.splitlines()
    assert [line.split()[:2] for line in errors] == [["error", "MEKS-0212"]] * 2
    assert all("meks init" in line for line in errors)


@pytest.mark.parametrize("command", COMMANDS[1:])
def test_another_region_in_the_environment_is_refused(command, tmp_path):
    """2: configuration or usage is wrong."""
    project_in(tmp_path)
    region = {"AWS_REGION": "eu-west-1"}
    done = meks(command, *ARGUMENTS.get(command, ()), cwd=tmp_path, environment=region)
    assert done.returncode == 2
    assert done.stderr.startswith("error: MEKS-0745 AWS_REGION is eu-west-1, and the cluster file")


@pytest.mark.parametrize("command", COMMANDS)
def test_no_credentials_is_one_line(command, tmp_path):
    """No traceback, whatever the command."""
    given = ["--region", "us-east-2", "--yes"] if command == "init" else []
    if command != "init":
        project_in(tmp_path)
    done = meks(command, *ARGUMENTS.get(command, ()), *given, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: MEKS-0740 no valid AWS credentials - set AWS_PROFILE")
    assert len(done.stderr.splitlines()) == 1


def test_numbers_and_times_are_checked_when_they_are_read():
    """A time without its zone would be somebody else's."""
    done = meks("scale", "p4d", "two")
    assert done.returncode == 2
    assert "'two' is no number" in done.stderr
    done = meks("scale", "p4d", "2", "--at", "2026-12-01T11:30")
    assert "is no time with its zone, such as 2026-12-01T11:30Z" in done.stderr


@pytest.mark.tools
def test_the_real_cdk_deploys_a_stack(server, tmp_path):
    """Bootstrap, synthesis, uploads and a change set, by the pinned command line."""
    cluster = LOCAL_CLUSTER.replace("name: techpulse", "name: really")
    project_in(tmp_path, cluster + "images: {prefix: really-}\n")
    environment = server.environment("us-east-2")
    done = meks("deploy", "Images", "--yes", cwd=tmp_path, environment=environment)
    assert done.returncode == 0, done.stderr
    assert "really-Images: CREATE_COMPLETE after" in done.stderr
    assert max(len(line) for line in done.stderr.splitlines()) <= 100
    again = meks("deploy", "Images", cwd=tmp_path, environment=environment)
    assert "really-Images: no changes" in again.stderr, again.stderr
    built = meks("outputs", "-o", "json", cwd=tmp_path, environment=environment)
    assert "really-megatron-training:" in built.stdout


@pytest.mark.tools
def test_what_the_real_cdk_refuses_is_one_line(server, tmp_path):
    """Its own words, without its stack trace."""
    cluster = LOCAL_CLUSTER.replace("name: techpulse", "name: fails")
    project_in(tmp_path, cluster + "images: {prefix: fails-}\n")
    done = meks(
        *("deploy", "Storage", "--yes"),
        cwd=tmp_path,
        environment=server.environment("us-east-2"),
    )
    assert done.returncode == 1
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert error.startswith("error: MEKS-0749 cdk deploy: ")
    assert "fails-Network" in error
