"""Counts the EFA devices that this pod can use, and what NCCL needs to use them.

efa_check --expect N

Looks at the devices of /sys/class/infiniband whose node in /dev/infiniband the pod has been
given, at libfabric's own list (fi_info), at the NCCL plugin where the loader looks for it, at
the limit on locked memory. Without EFA, NCCL falls back to TCP without an error, and TCP has one
network card of a node's 4 (p4d.24xlarge) to 32 (p5.48xlarge).

Exit codes: 0 as expected, 2 the command line is wrong, 4 not as expected.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from megatron_eks.programs import program
from megatron_eks.programs.checks import efa_system
from megatron_eks.programs.checks.efa_system import System
from megatron_eks.programs.program import Finding, Report, error, warning

_SMALL_MEMLOCK_BYTES = 64 * 2**20


def check_devices(system: System, expect: int, facts: dict[str, object]) -> Iterator[Finding]:
    """Compare the devices that the pod can open with what it should have."""
    devices = system.devices()
    usable = [device for device in devices if device.usable]
    facts["devices"] = len(usable)
    facts["devices_of_node"] = len(devices)
    program.say(f"{'device':<16} {'node':<10} {'usable':<8} state")
    for device in devices:
        can = "yes" if device.usable else "no"
        program.say(f"{device.name:<16} {device.node or '-':<10} {can:<8} {device.state}")
    found = f"{len(usable)} EFA devices are usable in this pod, {expect} expected"
    if len(usable) > expect:
        yield warning("EFA devices", found, "correct --expect, or ask for fewer devices")
    elif len(usable) < expect and len(devices) > len(usable):
        remedy = f"request vpc.amazonaws.com/efa: {expect} in the pod, and see that its user can "
        remedy += "read and write /dev/infiniband/uverbs*"
        yield error("EFA devices", f"{found}; the node has {len(devices)}", remedy)
    elif len(usable) < expect:
        remedy = "compare the launch template's interfaces with the instance type, and look "
        remedy += "whether the node's efa driver is loaded (lsmod)"
        yield error("EFA devices", f"{found}, and the node has no more", remedy)
    remedy = "the EFA security group must allow all traffic to itself both ways; else replace "
    for device in usable:
        if device.state not in {"ACTIVE", "unknown"}:
            yield error(device.name, f"its port is {device.state}", f"{remedy}the node")


def check_libfabric(system: System, expect: int, facts: dict[str, object]) -> Iterator[Finding]:
    """Compare libfabric's list with what is expected."""
    listed = system.libfabric_domains()
    if listed is None:
        yield warning("fi_info", "not installed here", "libfabric itself was not asked")
        return
    facts["libfabric_devices"] = len(listed)
    if len(listed) < expect:
        found = f"fi_info -p efa -t FI_EP_RDM lists {len(listed)} devices, {expect} expected"
        remedy = "use a libfabric with the efa provider (AWS's EFA installer), and run it by hand"
        yield error("libfabric", found, remedy)


def check_plugin(system: System, facts: dict[str, object]) -> Iterator[Finding]:
    """Look for the plugin by which NCCL reaches libfabric."""
    wanted = system.environment.get("NCCL_NET_PLUGIN", "")
    if wanted == "none":
        yield error("NCCL_NET_PLUGIN", "'none' switches EFA off", "remove it")
        return
    plugin = system.nccl_plugin()
    facts["nccl_plugin"] = str(plugin) if plugin else None
    if plugin is None:
        names = " or ".join(system.plugin_names())
        found = f"no {names} in {', '.join(map(str, system.library_directories()))}"
        remedy = "install aws-ofi-nccl (AWS's EFA installer), put its directory in LD_LIBRARY_PATH"
        yield error("NCCL plugin", found, remedy)
    elif "ofi" not in plugin.name and plugin.name != efa_system.PLUGIN:
        found = f"{wanted!r} makes NCCL load {plugin}, which knows no EFA"
        remedy = "set NCCL_NET_PLUGIN=ofi, or unset it (NVIDIA-NeMo/Megatron-Bridge#5033)"
        yield error("NCCL_NET_PLUGIN", found, remedy)
    network = system.environment.get("NCCL_NET", "")
    if network == "Socket":
        yield error("NCCL_NET", "'Socket' makes NCCL use TCP", "remove it")


def check_memory(system: System, facts: dict[str, object]) -> Iterator[Finding]:
    """Look at the limit on memory that EFA pins."""
    limit = system.locked_memory_bytes()
    facts["memlock_bytes"] = limit
    if limit is not None and limit < _SMALL_MEMLOCK_BYTES:
        found = f"the limit is {limit} bytes, so buffers cannot be registered"
        remedy = "raise the container runtime's LimitMEMLOCK, or give the pod IPC_LOCK"
        yield error("locked memory", found, remedy)


def main(argv: Sequence[str], report: Report) -> None:
    """Check, print the table and say what to do."""
    parser = program.parser(__doc__)
    add = parser.add_argument
    add("--expect", type=program.count, required=True, help="devices the pod should have")
    add("--root", type=Path, default=Path("/"), help="a recorded tree of /sys, /dev and /proc")
    options = parser.parse_args(argv)
    system, expect = System(options.root, os.environ), options.expect
    report.facts.update(expected=expect, host=os.uname().nodename)
    report.collect(check_devices(system, expect, report.facts))
    if expect == 0:
        slow = "ranks on several nodes talk over TCP, about 1 to 10 GB/s"
        program.say(f"no EFA is expected on this instance type: {slow}")
        return
    report.collect(check_libfabric(system, expect, report.facts))
    report.collect(check_plugin(system, report.facts))
    report.collect(check_memory(system, report.facts))


if __name__ == "__main__":
    sys.exit(program.run("efa_check", main, sys.argv[1:]))
