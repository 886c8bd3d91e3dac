"""The images are pinned, run as the pods' user, and leave NCCL's environment to the plan."""

import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from megatron_eks.build_context import context_files
from megatron_eks.catalog import pins
from megatron_eks.catalog.environment import Verdict
from megatron_eks.catalog.environment_verdicts import Context, judge
from megatron_eks.catalog.program_places import UNPACKED
from megatron_eks.plan.cluster.images import REPOSITORIES
from tests.assets.dockerfile import Instruction, merged, pairs, read_dockerfile

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "assets"
MEGATRON = ASSETS / "images" / "megatron"
HASH = "--hash=sha256:[0-9a-f]{64}"

# What every Docker engine's own frontend knows; others need one from a registry.
_PLACE = "${PYTHONPATH}"
KNOWN = {"ARG", "FROM", "SHELL", "RUN", "ENV", "COPY", "WORKDIR", "USER", "LABEL"}


@pytest.fixture(params=sorted(REPOSITORIES))
def image(request: pytest.FixtureRequest) -> str:
    """Name each image in turn."""
    return str(request.param)


@pytest.fixture
def instructions(image: str) -> list[Instruction]:
    """Return the image's instructions."""
    return read_dockerfile(ASSETS / "images" / image / "Dockerfile")


def rests(instructions: list[Instruction], name: str) -> list[str]:
    """Return the arguments of all instructions of one name."""
    return [instruction.rest for instruction in instructions if instruction.name == name]


def test_arguments_are_the_pins(image, instructions):
    """A version stands in pins.py, and a build by hand that lacks it ends at once."""
    assert merged(instructions, "ARG") == dict.fromkeys(pins.BUILD_ARGUMENTS[image], "")


def test_instructions_are_known(instructions):
    """A build needs no Dockerfile frontend from a registry."""
    assert {instruction.name for instruction in instructions} <= KNOWN


def test_base_is_an_argument_and_pinned(image, instructions):
    """One stage on one base image, which has an exact tag, and a digest where one is known."""
    assert rests(instructions, "FROM") == ["${BASE_IMAGE}"]
    tag = pins.BUILD_ARGUMENTS[image]["BASE_IMAGE"].partition("@")[0].rpartition(":")[2]
    assert re.search(r"\d", tag)
    assert "latest" not in (ASSETS / "images" / image / "Dockerfile").read_text()


def test_runs_as_the_pods_user(instructions):
    """Kubernetes checks runAsNonRoot by number, and the set-up of /shared gives it that number."""
    assert rests(instructions, "USER") == ["${POD_UID}"]
    (create,) = [rest for rest in rests(instructions, "RUN") if "useradd" in rest]
    assert '--gid "${POD_UID}"' in create
    assert '--uid "${POD_UID}"' in create


def test_environment_breaks_no_run(image, instructions):
    """Only the plugin's name is set, because the base image's own would keep NCCL off EFA."""
    environment = merged(instructions, "ENV")
    bad = {Verdict.REFUSED, Verdict.NO_EFFECT}
    verdicts = {name: judge(name, environment[name], Context()).verdict for name in environment}
    assert [name for name, verdict in verdicts.items() if verdict in bad] == []
    assert environment.get("NCCL_NET_PLUGIN") == {"megatron": "ofi"}.get(image)
    assert environment["HOME"] == "/tmp"  # noqa: S108 -- the one place where a pod may write


def test_no_secret_is_asked_for(instructions):
    """Neither an argument nor a variable is named as a secret is; both stay in the image."""
    for name in {**merged(instructions, "ARG"), **merged(instructions, "ENV")}:
        assert not re.search("TOKEN|SECRET|PASSWORD|KEY", name)


def test_copies_exist_in_the_build_context(image, instructions):
    """Every COPY finds files in what CodeBuild gets, programs land where jobs start them."""
    files = context_files(ROOT, image)
    targets = dict(rest.split() for rest in rests(instructions, "COPY"))
    for source in targets:
        assert any(fnmatch(file, f"{source}*") for file in files), source
    start = targets["megatron_eks/programs/zip_start.py"]
    assert (targets["megatron_eks"], start) == (f"{_PLACE}/megatron_eks", f"{_PLACE}/__main__.py")
    assert merged(instructions, "ENV")["PYTHONPATH"] == UNPACKED
    assert targets["assets/images/*.py"] == "/opt/megatron-eks/images/"


def test_shell_is_strict_and_commands_parse(instructions):
    """A failing pipe fails the build; bash accepts every command."""
    assert rests(instructions, "SHELL") == ['["/bin/bash", "-euo", "pipefail", "-c"]']
    for command in rests(instructions, "RUN"):
        subprocess.run(["/bin/bash", "-n"], input=command, text=True, check=True)


@pytest.mark.parametrize(("folder", "repository"), REPOSITORIES.items())
def test_labels_say_what_it_is(folder, repository):
    """A registry shows the standard labels."""
    labels = merged(read_dockerfile(ASSETS / "images" / folder / "Dockerfile"), "LABEL")
    assert labels["org.opencontainers.image.title"] == repository
    assert labels["org.opencontainers.image.base.name"] == "${BASE_IMAGE}"


def megatron_runs() -> str:
    """Return all commands of the Megatron image."""
    return "\n".join(rests(read_dockerfile(MEGATRON / "Dockerfile"), "RUN"))


@pytest.mark.parametrize(
    ("check", "use"),
    [
        ("sha256sum --check --strict -", "tar --extract"),
        ('= "${MEGATRON_LM_COMMIT}"', 'cp "${MEGATRON_LM}/'),
        ("--require-hashes", "make -C"),
    ],
)
def test_downloads_are_checked_before_use(check, use):
    """The installer by its checksum, the checkout by its commit, packages by their hashes."""
    commands = megatron_runs()
    assert 0 < commands.index(check) < commands.index(use)


def test_compiled_helpers_are_checked_as_the_pods_user():
    """Megatron runs make at every start, and a pod's user may write nothing there."""
    last = last_command("megatron")
    assert "/megatron/core/datasets --question" in last
    assert "test -r pretrain_gpt.py" in last


def last_command(image: str) -> str:
    """Return the command that runs after everything else, as the pods' user."""
    found = read_dockerfile(ASSETS / "images" / image / "Dockerfile")
    user = next(place for place, entry in enumerate(found) if entry.name == "USER")
    (last,) = rests(found[user:], "RUN")
    return last


def test_the_gate_ends_the_build(image):
    """It sees what the pods' user will see, and the driver that the nodes have."""
    last = last_command(image)
    assert last.startswith(f"python3 /opt/megatron-eks/images/gate.py --image {image} ")
    assert '--driver "${NODE_DRIVER_VERSION}"' in last
    assert "||" not in last


def test_the_gate_compares_the_installer_with_the_argument():
    """Another EFA that the base image left behind would show here."""
    assert '--expect "efa_installer=${EFA_INSTALLER_VERSION}"' in last_command("megatron")


def test_plugin_directory_is_on_the_loader_path():
    """NCCL opens the plugin by name, so the loader has to find it and its libfabric."""
    path = merged(read_dockerfile(MEGATRON / "Dockerfile"), "ENV")["LD_LIBRARY_PATH"]
    assert path.split(":")[:2] == ["/opt/amazon/ofi-nccl/lib", "/opt/amazon/efa/lib"]


def test_python_packages_are_locked(image):
    """Each package has one version and its hashes, and is installed only if they match."""
    directory = ASSETS / "images" / image
    lock = (directory / "requirements.txt").read_text()
    entries = [line for line in lock.splitlines() if line and not line.startswith((" ", "#"))]
    locked = re.findall(rf"^(\S+)==(\S+) \\\n(?:    {HASH}(?: \\)?\n)+", lock, re.MULTILINE)
    assert len(locked) == len(entries)
    (install,) = [
        rest for rest in rests(read_dockerfile(directory / "Dockerfile"), "RUN") if " pip " in rest
    ]
    assert "--require-hashes" in install


def megatron_lock() -> dict[str, str]:
    """Return the packages of the Megatron image."""
    lock = (MEGATRON / "requirements.txt").read_text()
    return dict(re.findall(r"^(\S+)==(\S+)", lock, re.MULTILINE))


def test_megatron_is_the_pinned_one():
    """What the image holds is what the plan and the tests were made for."""
    locked = megatron_lock()
    assert locked["megatron-core"] == pins.MEGATRON_CORE_VERSION
    assert locked["megatron-bridge"] == pins.MEGATRON_BRIDGE_VERSION
    asked = (MEGATRON / "requirements.in").read_text()
    assert set(re.findall(r"^([a-z0-9-]+)==(\S+)", asked, re.MULTILINE)) <= set(locked.items())


def test_base_image_keeps_its_own_builds():
    """The lock brings nothing that is compiled against the base image's CUDA, torch or NumPy."""
    settings = tomllib.loads((MEGATRON / "uv.toml").read_text())
    known = {each["name"]: each for each in settings["dependency-metadata"]}
    # Only its set-up code is not to run; what it needs is pure Python.
    del known["python-etcd"]
    assert {"megatron-core", "megatron-bridge"} <= known.keys()
    locked = megatron_lock()
    for name, each in known.items():
        assert (each.get("version", locked[name]), each["requires-dist"]) == (locked[name], [])
    theirs = {"torch", "numpy", "protobuf", "transformers", "transformer-engine", "triton"}
    assert not theirs & locked.keys()


def test_the_fsdp_image_has_what_examples_import():
    """Scripts of others, such as the Trainer's; torch stays the base image's."""
    lock = (ASSETS / "images" / "fsdp" / "requirements.txt").read_text()
    locked = set(re.findall(r"^(\S+)==", lock, re.MULTILINE))
    assert not {name for name in locked if re.match("torch|nvidia|triton", name)}
    for name in ("ddp", "trainer"):
        script = (ROOT / "examples" / "own-script" / "jobs" / name / "train.py").read_text()
        imported = set(re.findall(r"^(?:from|import) (\w+)", script, re.MULTILINE))
        assert imported - sys.stdlib_module_names <= {"torch"} | locked


def test_hadolint_finds_nothing(image):
    """The linter's own findings, none of them ignored without a reason in the file."""
    path = ASSETS / "images" / image / "Dockerfile"
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(  # noqa: S603 -- the linter of requirements/dev.txt
        [linter, "--no-color", str(path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "")
    ignored = re.findall(r"# hadolint ignore=(\S+)", path.read_text())
    assert ignored == {"megatron": ["DL3008"], "fsdp": []}[image]


def test_reader_reads_as_docker_does(tmp_path):
    """Comments inside an instruction vanish, and a backslash continues a line."""
    path = tmp_path / "Dockerfile"
    path.write_text('# a\nARG A=1\nENV B="x y" \\\n    # why\n    C=2\nRUN one \\\n\n && two\n')
    found = read_dockerfile(path)
    assert [entry.name for entry in found] == ["ARG", "ENV", "RUN"]
    assert pairs(found[1]) == {"B": "x y", "C": "2"}
    assert found[2].rest.split() == ["one", "&&", "two"]
