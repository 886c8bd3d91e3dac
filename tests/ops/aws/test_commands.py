"""The AWS commands as people run them: exit codes, streams, help, and the real CDK."""

import os

import pytest

from megatron_eks.__main__ import main
from megatron_eks.ops.aws.cdk import Cdk
from megatron_eks.ops.failure import Failure
from tests import command
from tests.ops.aws.fakes import ROOT, project_in
from tests.ops.aws.quick_cdk import LOCAL_CLUSTER

COMMANDS = ("init", "deploy", "outputs", "build", "scale", "cleanup")
ARGUMENTS = {"scale": ("p4d", "1"), "init": ("--region", "us-east-2", "--yes")}


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run commands where there is a cluster file, and neither credentials nor a terminal."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)

    def run(command, *arguments):
        code: str | int | None
        try:
            code = main([command, *ARGUMENTS.get(command, ()), *arguments])
        except SystemExit as ended:
            code = ended.code
        return code, *capsys.readouterr()

    return run


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_and_fits_a_terminal(run, command):
    """Eighty columns, no colour."""
    code, out, _ = run(command, "--help")
    assert code == 0
    assert f"examples:\n  meks {command}" in out
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "\x1b" not in out


@pytest.mark.parametrize("command", COMMANDS[1:])
def test_documentation_values_are_refused(run, tmp_path, command):
    """Before AWS is asked for anything, with the command that replaces them."""
    project_in(tmp_path, (ROOT / "cluster.yaml").read_text())
    code, out, _ = run(command)
    assert code == 2
    errors = out.splitlines()
    assert [line.split()[:2] for line in errors] == [["error", "MEKS-0212"]] * 2
    assert all("meks init" in line for line in errors)


@pytest.mark.parametrize("command", COMMANDS[1:])
def test_another_region_in_the_environment_is_refused(run, tmp_path, monkeypatch, command):
    """2: configuration or usage is wrong."""
    project_in(tmp_path)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    code, _, err = run(command)
    assert code == 2
    assert err.startswith("error: MEKS-0745 AWS_REGION is eu-west-1, and the cluster file says")


@pytest.mark.parametrize("command", COMMANDS)
def test_no_credentials_is_one_line(run, tmp_path, command):
    """No traceback, whatever the command."""
    if command != "init":
        project_in(tmp_path)
    code, _, err = run(command)
    assert code == 2
    assert err.startswith("error: MEKS-0740 no valid AWS credentials - set AWS_PROFILE")
    assert len(err.splitlines()) == 1


def test_numbers_and_times_are_checked_when_they_are_read(run):
    """Of times a start alone is known."""
    code, _, err = run("scale", "--minutes", "two")
    assert code == 2
    assert "'two' is not a number" in err
    code, _, err = run("scale", "--at", "2026-12-01T11:30")
    assert code == 2
    assert "invalid choice: '2026-12-01T11:30' (choose from 'start')" in err


def meks(*arguments, cwd, environment):
    """Run the command in a process of its own, without a terminal."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return command.meks(*arguments, cwd=cwd, env={**env, **environment})


@pytest.mark.tools
def test_the_real_cdk_deploys_what_is_then_built(server, tmp_path):
    """Bootstrap, synthesis, uploads and a change set; then the image from what was uploaded."""
    # Another region: that of the other tests passes for bootstrapped.
    cluster = LOCAL_CLUSTER.replace("us-east-2", "us-west-2")
    cluster = cluster.replace("name: techpulse", "name: really")
    project_in(tmp_path, cluster + "images: {prefix: really-}\n")
    environment = server.environment("us-west-2")
    done = meks("deploy", "Images", "--yes", cwd=tmp_path, environment=environment)
    assert done.returncode == 0, done.stderr
    assert "really-Images: CREATE_COMPLETE after" in done.stderr
    assert "really-megatron-training:" in (tmp_path / "outputs.json").read_text()
    done = meks("build", cwd=tmp_path, environment=environment)
    assert done.returncode == 0, done.stderr
    assert "next: meks synth, then meks apply" in done.stderr
    assert "really-megatron-training@sha256:" in (tmp_path / "outputs.json").read_text()
    done = meks("build", "megatron", cwd=tmp_path, environment=environment)
    assert "megatron: built already" in done.stderr
    # Destroyed by another command: the next deployment takes the repositories over.
    server.client("cloudformation", "us-west-2").delete_stack(StackName="really-Images")
    done = meks("deploy", "Images", "--yes", cwd=tmp_path, environment=environment)
    assert done.returncode == 0, done.stderr
    assert "take over   MegatronRepository" in done.stderr
    assert "really-megatron-training@sha256:" in (tmp_path / "outputs.json").read_text()


@pytest.mark.tools
def test_what_the_real_cdk_refuses_is_one_line(tmp_path):
    """Its own words, without its stack trace and colours."""
    cdk = Cdk(project_in(tmp_path), "us-east-2", tmp_path / "nothing-here")
    with pytest.raises(Failure) as caught:
        cdk.prepare("techpulse-Network", "meks-1", import_existing=False)
    assert caught.value.finding == "MEKS-0749"
    assert str(caught.value).startswith("MEKS-0749 cdk deploy: ")
    assert "nothing-here" in str(caught.value)
    assert "\x1b" not in str(caught.value)
