"""`meks build --local` with a real engine: podman, whose images stay in the test's folder."""

import re
import shutil
import subprocess

import pytest
import yaml

from megatron_eks.ops.cluster import local_build
from tests.ops.aws.building import Aws
from tests.ops.aws.fakes import CLUSTER, Clients, console, project_in, said, tools

pytestmark = pytest.mark.tools

LOOKS = "test $(id -u) = 10001 && test -r /kept && ! test -e /.env -o -e /left && ! touch /new"


def output(*words):
    """Return what a command prints; ldd fails at a program that is linked to nothing."""
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False).stdout  # noqa: S603 -- of `make shells`


@pytest.fixture
def podman(tmp_path, monkeypatch):
    """Let podman be the only engine; return what runs it."""
    roots = (f'{name}root = "{tmp_path / name}"' for name in ("graph", "run"))
    (tmp_path / "storage.conf").write_text("\n".join(["[storage]", 'driver = "vfs"', *roots]))
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(tmp_path / "storage.conf"))
    # Its own limits need CAP_SYS_RESOURCE, and crun takes no cgroups of both versions at once.
    limits = '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]'
    (tmp_path / "containers.conf").write_text(f'{limits}\n[engine]\nruntime = "runc"')
    monkeypatch.setenv("CONTAINERS_CONF", str(tmp_path / "containers.conf"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(local_build, "_ENGINES", ("podman",))
    return lambda *words: output("podman", *words)


@pytest.fixture
def context(tmp_path):
    """Return the folder of an image that has a shell and what that is linked to, no more."""
    context = tmp_path / "mine"
    shell = shutil.which("busybox") or ""
    files = {f"bin/{name}": shell for name in ("sh", "id", "touch")}
    files |= {path[1:]: path for path in re.findall(r"(/\S+) \(0x", output("ldd", shell))}
    for name, path in files.items():
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, context / name)
    for name in (".env", "kept", "left"):
        (context / name).touch()
    (context / ".dockerignore").write_text("left\n")
    (context / "Dockerfile").write_text("FROM scratch\nCOPY . /\nENV PATH=/bin\n")
    return context


def build(folder, test):
    """Build the image without an account; return the exit code, what was said, and the tag."""
    own = {"name": "trainer", "context": "mine", "test": test}
    text = yaml.safe_dump({**yaml.safe_load(CLUSTER), "images": {"own": [own]}})
    aws, missing = Aws(), "Stack with id techpulse-Images does not exist"
    aws.stubs["cloudformation"].add_client_error("describe_stacks", "ValidationError", missing)
    place = tools(project_in(folder, text), Clients(**aws.clients), console())
    code = local_build.run(["trainer"], place)
    return code, said(place.console), f"trainer:{place.plan.images[-1].tag}"


def test_an_image_is_built_and_looked_at_as_a_pod_would_run_it(tmp_path, podman, context):
    """Its user, what may be written, what stayed here; in the format that keeps SHELL."""
    del context
    code, said_so, image = build(tmp_path, f"{LOOKS} && touch /tmp/new")
    assert code == 0, said_so
    assert "docker.distribution.manifest" in podman(
        "image", "inspect", "--format={{.ManifestType}}", image
    )


def test_an_image_is_refused_with_what_its_test_said(tmp_path, podman, context):
    """The exit code alone would help nobody."""
    del podman, context
    code, said_so, _ = build(tmp_path, "echo it says why; exit 3")
    assert code == 1
    assert "  it says why\n" in said_so
    assert "test of trainer: the image does not pass its test" in said_so
