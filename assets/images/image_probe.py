"""What an image holds, read from its files, libraries and packages: for the gate of its build."""

import ctypes
import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from megatron_eks.programs import efa_check
from megatron_eks.programs.checks.efa_system import System
from megatron_eks.programs.program import Finding, error

INSTALLED = "opt/amazon/efa_installed_packages"
"""What AWS's EFA installer writes: its own version, and those of its packages."""
_INSTALLER = re.compile(r"EFA installer version:\s*(\S+)")
_PACKAGES = {
    "libfabric": re.compile(r"\blibfabric\d*-aws[_-](\d\S*)"),
    "rdma_core": re.compile(r"\brdma-core[_-](\d\S*)"),
    "aws_ofi_nccl": re.compile(r"\blibnccl-(?:net-)?ofi(?:-ngc)?[_-](\d\S*)"),
}
_PROVIDER = re.compile(r"^efa:", re.MULTILINE)
_FI_INFO = "/opt/amazon/efa/bin/fi_info"
_SECONDS = 60

# Written out, but what the library does anyway.
_BY_DEFAULT = dict.fromkeys(
    ("CUDA_LAUNCH_BLOCKING", "NCCL_IB_DISABLE", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"), "0"
)
_DISTRIBUTIONS = {
    "torch": "torch",
    "transformers": "transformers",
    "nvidia_resiliency_ext": "nvidia-resiliency-ext",
    "transformer_engine": "transformer-engine",
    "megatron_core": "megatron-core",
    "megatron_bridge": "megatron-bridge",
}
MODULES: dict[str, tuple[str, ...]] = {
    "megatron": (
        *("megatron.core", "megatron.training", "megatron.bridge", "transformer_engine"),
        *("nvidia_resiliency_ext.checkpointing.async_ckpt", "transformers", "psutil"),
        *("tensorboard.summary.writer", "boto3", "gigatoken", "orjson", "tokenizers", "zstandard"),
        *("safetensors", "yaml", "etcd"),
    ),
    "fsdp": (
        *("torch.distributed.fsdp", "boto3", "datasets", "safetensors", "tokenizers", "yaml"),
        *("etcd", "accelerate", "transformers"),
    ),
}
"""What the programs of an image import, and scripts of others."""
OURS: dict[str, tuple[str, ...]] = {
    "megatron": ("megatron.core", "megatron.training", "megatron.bridge"),
    "fsdp": (),
}
"""What has to come from this project's packages, though the base image has it too."""


@dataclass(frozen=True)
class Found:
    """One version, and where it stands."""

    version: str
    where: str


def installed_versions(system: System) -> dict[str, Found]:
    """Return what the EFA installer says that it installed."""
    path = system.root / INSTALLED
    text = path.read_text() if path.is_file() else ""
    found = {name: pattern.search(text) for name, pattern in _PACKAGES.items()}
    found["efa_installer"] = _INSTALLER.search(text)
    return {name: Found(_plain(hit[1]), f"/{INSTALLED}") for name, hit in found.items() if hit}


def python_versions() -> dict[str, Found]:
    """Return the versions of Python, its packages, CUDA and NCCL, as they are found."""
    found = {"python": Found(platform.python_version(), "this interpreter")}
    for name, distribution in _DISTRIBUTIONS.items():
        try:
            found[name] = Found(importlib.metadata.version(distribution), distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    cuda = _cuda()
    if cuda:
        found["cuda"] = Found(cuda, "torch/version.py")
    nccl = _nccl()
    if nccl:
        found["nccl"] = Found(nccl, "libnccl.so.2")
    return found


def check_plugin(system: System) -> Iterator[Finding]:
    """Look for NCCL's plugin as a node's check does, and see whether it loads here."""
    yield from efa_check.check_plugin(system, {})
    plugin = system.nccl_plugin()
    if plugin is not None and system.root == Path("/"):
        yield from _check_loads(plugin)


def check_provider(system: System) -> Iterator[Finding]:
    """Ask libfabric which providers it was built with; that needs no EFA device."""
    recorded = system.root / "fi_providers.txt"
    if system.root == Path("/"):
        listed = _run_fi_info()
    else:
        listed = recorded.read_text() if recorded.is_file() else None
    if listed is None:
        yield error("fi_info", f"no {_FI_INFO}", "install libfabric with AWS's EFA installer")
    elif not _PROVIDER.search(listed):
        names = ", ".join(re.findall(r"^(\S+):$", listed, re.MULTILINE)) or "none"
        yield error(
            "libfabric",
            f"fi_info -l lists no provider efa (it has: {names})",
            "put /opt/amazon/efa/lib before other libfabrics in LD_LIBRARY_PATH, or install AWS's",
        )


def check_environment(system: System, refused: frozenset[str]) -> Iterator[Finding]:
    """Look for variables that break a run, in the environment and in NCCL's own file."""
    path = system.root / "etc/nccl.conf"
    lines = path.read_text().splitlines() if path.is_file() else []
    own = {
        name.strip(): value.strip() for name, _, value in (each.partition("=") for each in lines)
    }
    places = (
        ("the environment", system.environment, "remove its ENV"),
        ("/etc/nccl.conf", own, "remove the line"),
    )
    for place, variables, remedy in places:
        for name in sorted(refused & variables.keys()):
            if variables[name] != _BY_DEFAULT.get(name):
                found = f"{place} of the image sets it to {variables[name]!r}, and it breaks runs"
                yield error(name, found, remedy)


def check_modules(image: str, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Look for what the image's programs import, and for Megatron in the right place."""
    ours = [Path(each) for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]
    for name in MODULES[image]:
        places, problem = _places(name)
        if problem:
            remedy = "add its package to requirements.in, make lock"
            yield error(name, f"cannot be imported: {problem}", remedy)
        elif name in OURS[image] and not _inside(places[0], ours):
            found = f"is imported from {places[0]}"
            yield error(name, found, "put /opt/megatron-eks/packages first in PYTHONPATH")


def _places(module: str) -> tuple[list[Path], str]:
    """Return where a module would be imported from, or why it would not."""
    try:
        spec = importlib.util.find_spec(module)
    except Exception as problem:  # noqa: BLE001 -- looking for a module imports its parents
        return [], f"{type(problem).__name__}: {problem}"
    if spec is None:
        return [], "no such module"
    origin = [Path(spec.origin)] if spec.origin else []
    return [*origin, *map(Path, spec.submodule_search_locations or [])], ""


def _inside(place: Path, folders: list[Path]) -> bool:
    return any(place.is_relative_to(each) for each in folders)


def _check_loads(plugin: Path) -> Iterator[Finding]:
    try:
        # Torch's own libraries bring libibverbs first: another one than the plugin's shows here
        # (NVIDIA-NeMo/Megatron-Bridge#2824).
        ctypes.CDLL("libibverbs.so.1", mode=os.RTLD_NOW | os.RTLD_GLOBAL)
        ctypes.CDLL(plugin.name, mode=os.RTLD_NOW)
    except OSError as problem:
        yield error(
            "NCCL plugin",
            f"{plugin} does not load: {problem}",
            "put the EFA installer's rdma-core before others in LD_LIBRARY_PATH, run ldconfig",
        )


def _run_fi_info() -> str | None:
    if not Path(_FI_INFO).is_file():
        return None
    done = subprocess.run(  # noqa: S603 -- a fixed command
        [_FI_INFO, "-l"], capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    return done.stdout


def _cuda() -> str | None:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    text = (Path(spec.origin).parent / "version.py").read_text()
    match = re.search(r"^cuda\b.*['\"]([\d.]+)['\"]", text, re.MULTILINE)
    return match[1] if match else None


def _nccl() -> str | None:
    try:
        library = ctypes.CDLL("libnccl.so.2")
    except OSError:
        return None
    number = ctypes.c_int()
    library.ncclGetVersion(ctypes.byref(number))
    return nccl_version(number.value)


def nccl_version(number: int) -> str:
    """Write NCCL's number of a version: 23007 is 2.30.7 (nccl.h, NCCL_VERSION)."""
    return f"{number // 10000}.{number % 10000 // 100}.{number % 100}"


def _plain(version: str) -> str:
    """Return a package's version without the architecture and the distribution's release."""
    return re.split(r"[_-]", version, maxsplit=1)[0]
