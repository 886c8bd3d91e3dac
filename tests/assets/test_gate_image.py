"""The gate's look at an image: files, libraries and variables of recorded trees."""

from pathlib import Path
from types import SimpleNamespace

import image_probe
import pytest

from megatron_eks.programs.checks.efa_system import System
from tests.assets.gate_run import gate

DEBIAN = """# EFA installer version: 1.49.0
# Debug packages installed: no
# Packages installed:
efa-profile_1.7_all libfabric-aws-bin_2.4.0amzn5.0_amd64 libfabric1-aws_2.4.0amzn5.0_amd64 \
libnccl-ofi-ngc_1.20.0_amd64 rdma-core_63.0-1_amd64 ibverbs-providers_63.0-1_amd64
"""
FEDORA = """# EFA installer version: 1.49.0
# Packages installed:
libfabric-aws-2.4.0amzn5.0-1.amzn2023.x86_64 libnccl-ofi-1.20.0-1.amzn2023.x86_64 \
rdma-core-63.0-1.amzn2023.x86_64
"""
PROVIDERS = "shm:\n    version: 204.0\nefa:\n    version: 204.0\ntcp:\n    version: 204.0\n"
ENVIRONMENT = {"NCCL_NET_PLUGIN": "ofi", "LD_LIBRARY_PATH": "/opt/amazon/ofi-nccl/lib"}


class Image:
    """The files of an image that the gate reads; a test takes away or adds one."""

    def __init__(self, root):
        self.root = root
        self.write("opt/amazon/efa_installed_packages", DEBIAN)
        self.write("fi_providers.txt", PROVIDERS)
        self.write("opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so", "")

    def write(self, name, content):
        """Write a file of the image."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def judged(self, *arguments, **environment):
        """Let the gate look at the tree."""
        merged = {**ENVIRONMENT, **environment}
        given = ("--image", "megatron", "--root", self.root, *arguments)
        return gate(*given, environment=merged)


@pytest.fixture
def image(tmp_path):
    """Return an image in which everything of EFA is as it should be."""
    return Image(tmp_path)


@pytest.mark.parametrize("record", [DEBIAN, FEDORA])
def test_the_installer_s_record_is_read(image, record):
    """Its own version and those of what it brings, as Debian and Fedora write packages."""
    image.write("opt/amazon/efa_installed_packages", record)
    done = image.judged("--expect", "efa_installer=1.49.0", "--driver", "580.159.03")
    assert (done.code, done.findings) == (0, [])
    assert done.versions == {
        "libfabric": "2.4.0amzn5.0",
        "rdma_core": "63.0",
        "aws_ofi_nccl": "1.20.0",
        "efa_installer": "1.49.0",
        "driver": "580.159.03",
    }


def test_a_plugin_outside_the_loader_s_path_is_missed(image):
    """NCCL would say so in its log, and use TCP."""
    done = image.judged(LD_LIBRARY_PATH="/usr/lib")
    assert done.code == 4
    assert "NCCL plugin: no ofi or libnccl-net-ofi.so in /usr/lib" in done.findings[0]


def test_the_loader_s_own_configuration_counts(image):
    """Ldconfig's folders are searched as well."""
    image.write("etc/ld.so.conf.d/efa.conf", "/opt/amazon/ofi-nccl/lib\n")
    assert image.judged(LD_LIBRARY_PATH="").code == 0


def test_the_base_image_s_own_plugin_is_refused(image):
    """With Spectrum-X NCCL falls back to TCP on AWS without an error."""
    image.write("opt/amazon/ofi-nccl/lib/libnccl-net-spcx.so", "")
    done = image.judged(NCCL_NET_PLUGIN="spcx")
    assert done.code == 4
    assert "which knows no EFA" in done.findings[0]
    assert "set NCCL_NET_PLUGIN=ofi" in done.findings[0]


@pytest.mark.parametrize(
    ("listed", "says"),
    [("shm:\n    version: 1\ntcp:\n    version: 1\n", "(it has: shm, tcp)"), ("", "none")],
)
def test_a_libfabric_without_efa_is_refused(image, listed, says):
    """Ubuntu's own libfabric is such a one."""
    image.write("fi_providers.txt", listed)
    done = image.judged()
    assert done.code == 4
    assert says in done.findings[0]


def test_no_libfabric_at_all_is_refused(image):
    """Nothing to ask."""
    (image.root / "fi_providers.txt").unlink()
    assert "install libfabric" in image.judged().findings[0]


@pytest.mark.parametrize(
    "name", ["NCCL_COMM_ID", "MASTER_PORT", "FI_EFA_USE_DEVICE_RDMA", "NCCL_TIMEOUT"]
)
def test_a_variable_that_breaks_runs_is_refused(image, name):
    """An image sets it for every job."""
    done = image.judged(**{name: "1"})
    assert done.code == 4
    (line,) = done.findings
    assert line.startswith(f"error {name}: the environment of the image sets it to '1'")
    assert line.endswith("remove its ENV")


def test_nccl_s_own_file_counts_as_well(image):
    """AWS's containers write one; what it says there is harmless."""
    image.write("etc/nccl.conf", "NCCL_DEBUG=INFO\nNCCL_SOCKET_IFNAME=^docker0,lo\n")
    assert image.judged().code == 0
    image.write("etc/nccl.conf", "NCCL_NET = Socket\n")
    assert "/etc/nccl.conf of the image sets it to 'Socket'" in image.judged().findings[0]


def test_what_libraries_do_anyway_is_no_finding(image):
    """A base image may write a default out."""
    assert image.judged(NCCL_P2P_DISABLE="0", CUDA_LAUNCH_BLOCKING="0").code == 0


def test_a_machine_that_is_no_image_is_refused_with_everything_it_lacks():
    """Nothing is recorded here: the gate looks at the running system."""
    done = gate("--image", "megatron")
    assert done.code == 4
    missing = " ".join(done.findings)
    for name in ("efa_installer", "libfabric", "megatron_bridge", "fi_info", "NCCL plugin"):
        assert f"error {name}: " in missing


def test_megatron_from_the_base_image_s_own_checkout_is_refused(tmp_path, monkeypatch):
    """Its version would be another than the lock's, and the metadata would not say so."""
    for folder in ("ours/megatron/core", "base/megatron/bridge"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").touch()
    for folder in ("ours", "base"):
        monkeypatch.syspath_prepend(str(tmp_path / folder))
    environment = {"PYTHONPATH": str(tmp_path / "ours")}
    found = list(image_probe.check_modules("megatron", environment))
    subjects = {each.subject: each.found for each in found}
    assert "megatron.core" not in subjects
    assert subjects["megatron.bridge"].startswith("is imported from ")
    assert subjects["megatron.training"].startswith("cannot be imported")


def test_nccl_s_number_is_written_as_people_do():
    """The header packs three parts into one."""
    assert image_probe.nccl_version(23007) == "2.30.7"


def test_a_plugin_that_does_not_load_is_found(tmp_path, monkeypatch):
    """An empty file is no library; the loader's own words are shown."""
    (tmp_path / "libnccl-net-ofi.so").touch()
    environment = {"NCCL_NET_PLUGIN": str(tmp_path / "libnccl-net-ofi.so")}
    monkeypatch.setattr(image_probe, "ctypes", SimpleNamespace(CDLL=_refuse), raising=True)
    (finding,) = image_probe.check_plugin(System(Path("/"), environment))
    assert "does not load: file too short" in finding.found


def _refuse(name, **_):
    raise OSError(f"file too short: {name}" if "nccl" in name else "file too short")
