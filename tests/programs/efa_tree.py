"""Trees of /sys, /dev and /proc as a pod on an EFA node sees them."""

from pathlib import Path

P4D_FI_INFO = """provider: efa
    fabric: {fabric}
    domain: {name}-rdm
    version: 122.0
    type: FI_EP_RDM
    protocol: FI_PROTO_EFA
"""


class Tree:
    """A node with some EFA devices; its methods take something away."""

    def __init__(self, root: Path, devices: int) -> None:
        self.root = root
        self.names = [f"rdmap{16 + index}s27" for index in range(devices)]
        for index, name in enumerate(self.names):
            self._add_device(name, index)
        # A device of another maker, as sysfs shows it on machines with a second network card.
        self._write(f"sys/class/infiniband/mlx5_{devices}/device/vendor", "0x15b3\n")
        text = "---\n".join(
            P4D_FI_INFO.format(name=name, fabric=fabric)
            for name in self.names
            for fabric in ("efa-direct", "efa")
        )
        self._write("fi_info.txt", text)
        self._write("etc/ld.so.conf.d/000_efa.conf", "/opt/amazon/ofi-nccl/lib\n")
        self._write("opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so", "")
        self._write("opt/amazon/ofi-nccl/lib/libnccl-net.so", "")
        self.limit_locked_memory("unlimited")

    def withhold(self, count: int) -> None:
        """Leave the last devices out of the pod, as the device plugin does."""
        for index in range(len(self.names) - count, len(self.names)):
            (self.root / f"dev/infiniband/uverbs{index}").unlink()

    def limit_locked_memory(self, word: str) -> None:
        """Set the limit as /proc prints it."""
        self._write(
            "proc/self/limits",
            "Limit                     Soft Limit           Hard Limit           Units\n"
            f"Max locked memory         {word:<20} {word:<20} bytes\n",
        )

    def set(self, name: str, text: str, device: int = 0) -> None:
        """Write an attribute of a device."""
        self._write(f"sys/class/infiniband/{self.names[device]}/{name}", text)

    def remove(self, path: str) -> None:
        """Remove a file."""
        (self.root / path).unlink()

    def write(self, path: str, text: str) -> None:
        """Write a file below the root."""
        self._write(path, text)

    def _add_device(self, name: str, index: int) -> None:
        base = f"sys/class/infiniband/{name}"
        self._write(f"{base}/device/vendor", "0x1d0f\n")
        self._write(f"{base}/device/infiniband_verbs/uverbs{index}/ibdev", f"{name}\n")
        self._write(f"{base}/ports/1/state", "4: ACTIVE\n")
        (self.root / base / "device/driver").symlink_to("../../../../bus/pci/drivers/efa")
        self._write(f"dev/infiniband/uverbs{index}", "")

    def _write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
