"""What a Linux system tells of EFA: sysfs, device nodes, libfabric, libraries and limits.

Layout: drivers/infiniband of Linux; kernel/linux/efa/efa_sysfs.c of amzn/amzn-drivers 3.1;
src/plugin/plugin_open.cc of NCCL 2.30; provider efa of libfabric 2.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PLUGIN = "libnccl-net.so"
"""What NCCL loads where nothing else is named."""

_AMAZON = "0x1d0f"
_DRIVER = "efa"
_FI_INFO = ("/opt/amazon/efa/bin/fi_info", "/usr/bin/fi_info")
_FI_INFO_SECONDS = 60.0
_LOADER_DIRECTORIES = ("lib64", "usr/lib64", "lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu")
_PORT_STATE = re.compile(r"\d+:\s*(\w+)")
_DOMAIN = re.compile(r"^\s*domain:\s*(\S+)-rdm\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Device:
    """One EFA device of the node."""

    name: str
    node: str | None
    """Name of its node in /dev/infiniband, where sysfs tells it."""
    usable: bool
    """The pod has the node and may read and write it."""
    state: str


@dataclass(frozen=True)
class System:
    """The system below a root directory; another root is a recorded tree."""

    root: Path
    environment: Mapping[str, str]

    def devices(self) -> list[Device]:
        """Return the node's EFA devices, by name."""
        directory = self.root / "sys/class/infiniband"
        if not directory.is_dir():
            return []
        return [self._device(path) for path in sorted(directory.iterdir()) if _is_efa(path)]

    def counter(self, device: str, name: str) -> int | None:
        """Return a hardware counter of a device; None where its driver has none of the name."""
        text = _text(self.root / f"sys/class/infiniband/{device}/ports/1/hw_counters/{name}")
        return int(text) if text.isdigit() else None

    def libfabric_domains(self) -> set[str] | None:
        """Return the devices that libfabric can use; None where fi_info is not installed."""
        recorded = self.root / "fi_info.txt"
        if self.root != Path("/"):
            text = recorded.read_text() if recorded.exists() else None
        else:
            text = _run_fi_info()
        return None if text is None else set(_DOMAIN.findall(text))

    def plugin_names(self) -> list[str]:
        """Return the file names under which NCCL tries its network plugin, in its order."""
        wanted = self.environment.get("NCCL_NET_PLUGIN", "")
        if not wanted:
            return [PLUGIN]
        names = [name for name in wanted.split(",") if name]
        return [each for name in names for each in (name, f"libnccl-net-{name}.so")]

    def library_directories(self) -> list[Path]:
        """Return the directories in which the loader looks, as they are called in the pod."""
        named = self.environment.get("LD_LIBRARY_PATH", "").split(":")
        configured: list[str] = []
        folder = self.root / "etc/ld.so.conf.d"
        for file in sorted(folder.glob("*.conf")) if folder.is_dir() else []:
            configured += [line.strip() for line in file.read_text().splitlines()]
        every = [*named, *configured, *(f"/{name}" for name in _LOADER_DIRECTORIES)]
        return [Path(name) for name in dict.fromkeys(every) if name.startswith("/")]

    def nccl_plugin(self) -> Path | None:
        """Return the plugin that NCCL loads, as it is called in the pod."""
        for name in self.plugin_names():
            directories = [Path(name).parent] if name.startswith("/") else None
            for directory in directories or self.library_directories():
                path = directory / Path(name).name
                if (self.root / path.relative_to("/")).is_file():
                    return path
        return None

    def locked_memory_bytes(self) -> int | None:
        """Return the limit on locked memory; None is no limit."""
        for line in _text(self.root / "proc/self/limits").splitlines():
            if line.startswith("Max locked memory"):
                word = line.removeprefix("Max locked memory").split()[0]
                return int(word) if word.isdigit() else None
        return None

    def _device(self, path: Path) -> Device:
        verbs = path / "device/infiniband_verbs"
        nodes = sorted(verbs.iterdir()) if verbs.is_dir() else []
        node = nodes[0].name if nodes else None
        device_node = self.root / "dev/infiniband" / (node or "")
        usable = node is not None and os.access(device_node, os.R_OK | os.W_OK)
        state = _PORT_STATE.match(_text(path / "ports/1/state"))
        return Device(path.name, node, usable, state[1] if state else "unknown")


def _is_efa(path: Path) -> bool:
    driver = path / "device/driver"
    if driver.is_symlink():
        return driver.readlink().name == _DRIVER
    return _text(path / "device/vendor") == _AMAZON


def _run_fi_info() -> str | None:
    tool = shutil.which("fi_info") or next((name for name in _FI_INFO if Path(name).exists()), None)
    if tool is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603 -- a fixed command
            [tool, "-p", "efa", "-t", "FI_EP_RDM"],
            capture_output=True,
            text=True,
            timeout=_FI_INFO_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
