"""The phases of an image of the user's, run for real with recorders in place of docker and aws."""

import json

import pytest

from megatron_eks.config.images import OwnImage
from megatron_eks.own_images import stage_own
from megatron_eks.plan.cluster.images import OWN_ARGUMENTS, OWN_PROGRAM
from tests.assets.build_machine import DIGEST, ROOT, TAG, Machine

pytestmark = pytest.mark.tools

BASE = f"111122223333.dkr.ecr.us-east-2.amazonaws.com/fsdp@{DIGEST}"
TEST = "python3 -c 'import mine'"
ASKED = {"IMAGE_NAME": "trainer", "DOCKERFILE": "docker/Dockerfile", "TEST": TEST}
FROM_OURS = {**ASKED, "BASE": "fsdp", "BASE_IMAGE": BASE}


@pytest.fixture
def run(tmp_path):
    """Return what runs a build of a folder with variables, and the machine that does."""
    (tmp_path / "mine" / "docker").mkdir(parents=True)
    (tmp_path / "mine" / "docker" / "Dockerfile").write_text("ARG BASE_IMAGE\nFROM $BASE_IMAGE\n")
    image = OwnImage(name="trainer", context="mine", dockerfile="docker/Dockerfile", test=TEST)
    stage_own(image, tmp_path, ROOT, tmp_path / "own")
    machine = Machine(tmp_path, OWN_PROGRAM)
    return machine, lambda **variables: machine.run(
        json.dumps(OWN_ARGUMENTS), source=tmp_path / "own", **variables
    )


def report(machine):
    """Return what CodeBuild reads of the tests."""
    return (machine.folder / "reports" / "trainer.xml").read_text()


def test_it_starts_from_the_image_of_ours_and_passes_its_gate_and_its_own_test(run):
    """In this order; then it is pushed, and its digest recorded."""
    machine, build = run
    done = build(**FROM_OURS)
    assert done.succeeded, done.err
    _, make, gate, test, push = done.commands("docker")
    assert f"BASE_IMAGE={BASE}" in make
    assert (make[make.index("--file") + 1], make[-1]) == ("context/docker/Dockerfile", "context")
    driver = OWN_ARGUMENTS["NODE_DRIVER_VERSION"]
    assert gate[-3:] == ["/opt/megatron-eks/images/gate.py", "--image=fsdp", f"--driver={driver}"]
    assert test[-2:] == ["-c", TEST]
    assert {"--entrypoint=/bin/sh", "--network=none", "--read-only", "--user=10001"} <= set(test)
    assert push[0] == "push"
    assert machine.exported(machine.folder / "own") == DIGEST
    assert 'failures="0"' in report(machine)


def test_without_a_base_there_is_no_gate(run):
    """Only the user's own test."""
    machine, build = run
    assert build(**ASKED).did("docker") == ["login", "build", "run", "push"]
    assert machine.tags() == {TAG: DIGEST}


@pytest.mark.parametrize(
    ("fails", "did", "case"),
    [(f"--driver={OWN_ARGUMENTS['NODE_DRIVER_VERSION']}", 1, "gate"), (TEST, 2, "test")],
)
def test_what_does_not_pass_is_not_pushed(run, fails, did, case):
    """The report and the last line name what failed."""
    machine, build = run
    done = build(**FROM_OURS, FAILS=fails)
    assert not done.succeeded
    assert done.did("docker") == ["login", "build", *["run"] * did]
    assert f"the image does not pass its {case}" in done.err
    assert f'name="{case}"><failure/>' in report(machine)
    assert machine.tags() == {}


def test_nothing_is_built_from_an_unnamed_base(run):
    """CodeBuild's console starts builds without what meks knows."""
    _, build = run
    done = build(**FROM_OURS | {"BASE_IMAGE": ""})
    assert done.phases["pre_build"] == 1
    assert "nothing says which fsdp to start from - run meks build" in done.err
    assert done.calls == []
