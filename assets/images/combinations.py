"""Versions that do not run together, each with what happens, what to do, and the public source.

Read 2026-11: issues and pull requests of the repositories named, the release notes of aws-ofi-nccl
up to v1.21.1 (RELEASENOTES.md), and the metadata of PyPI's wheels.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Version = tuple[int, ...]

NAMES: dict[str, tuple[str, ...]] = {
    "python": (),
    "torch": ("pytorch",),
    "cuda": ("cuda_toolkit",),
    "driver": ("nvidia_driver",),
    "nccl": ("libnccl",),
    "efa_installer": ("efa",),
    "aws_ofi_nccl": ("plugin", "ofi_nccl", "nccl_plugin", "libnccl_ofi"),
    "libfabric": (),
    "rdma_core": ("rdmacore",),
    "transformer_engine": ("te",),
    "transformers": (),
    "nvidia_resiliency_ext": ("nvrx", "resiliency_ext"),
    "megatron_core": ("mcore", "core"),
    "megatron_bridge": ("bridge",),
}
"""What a set of versions may name, and other names for it."""

INSTALLER_BRINGS: dict[str, dict[str, str]] = {
    "1.47.0": {"aws_ofi_nccl": "1.18.0"},  # aws/deep-learning-containers#6668
    "1.49.0": {"aws_ofi_nccl": "1.20.0", "libfabric": "2.4.0amzn5.0", "rdma_core": "63.0"},
    "1.50.0": {"aws_ofi_nccl": "1.21.1", "libfabric": "2.6.0amzn1.0", "rdma_core": "64.0"},
}
"""What a release of AWS's EFA installer puts in, where a set does not say it."""

_LEADING = re.compile(r"v?(\d+(?:\.\d+)*)")
_CONDITION = re.compile(r"(<=|>=|==|<|>)(.+)")
_NOTES = "https://github.com/aws/aws-ofi-nccl/blob/v1.21.1/RELEASENOTES.md"
_GITHUB = "https://github.com"


@dataclass(frozen=True)
class Rule:
    """A combination, and what is known of it."""

    when: Mapping[str, str]
    """Conditions on versions, by name, comma-separated; the rule holds where all of them do."""
    happens: str
    remedy: str
    source: str
    level: Literal["error", "warning"] = "error"

    def holds(self, versions: Mapping[str, str]) -> bool:
        """Tell whether a set is of this combination; what it does not name is not judged."""
        return all(
            name in versions and all(_holds(versions[name], each) for each in conditions.split(","))
            for name, conditions in self.when.items()
        )


def _pair(bridge: str, after: str, core: str, next_core: str) -> Iterator[Rule]:
    for wrong in (f"<{core}", f">={next_core}"):
        yield Rule(
            {"megatron_bridge": f">={bridge},<{after}", "megatron_core": wrong},
            f"Megatron-Bridge {bridge} is made for Megatron core {core}",
            f"take megatron-core {core}, or the Bridge of your core",
            f"{_GITHUB}/NVIDIA-NeMo/Megatron-Bridge/blob/v0.6.0/docs/releases/software-versions.md"
            " and the submodule 3rdparty/Megatron-LM at that tag",
        )


RULES: tuple[Rule, ...] = (
    Rule(
        {"nccl": ">=2.19", "efa_installer": "<1.29.1"},
        "buffers cannot be registered: 'Unable to register memory ... RC: -22'",
        "take EFA installer 1.29.1 or later",
        f"{_GITHUB}/aws/aws-ofi-nccl/issues/584, "
        f"{_GITHUB}/awslabs/awsome-distributed-ai/issues/203",
    ),
    Rule(
        {"aws_ofi_nccl": ">=1.7.0", "libfabric": "<1.18"},
        "the plugin starts, then fails: 'Couldn't set FI_OPT_...'",
        "take the libfabric of the same EFA installer, 1.18 or later",
        f"{_GITHUB}/aws/aws-ofi-nccl/issues/241",
    ),
    Rule(
        {"aws_ofi_nccl": "==1.9.0", "libfabric": "<1.18.2"},
        "the plugin does not load: \"version 'FABRIC_1.7' not found\", and NCCL uses TCP",
        "take aws-ofi-nccl 1.9.1 or later, or libfabric 1.18.2",
        f"{_GITHUB}/awslabs/awsome-distributed-ai/issues/292",
    ),
    Rule(
        {"aws_ofi_nccl": ">=1.15.0", "libfabric": "<1.22"},
        "the plugin refuses this libfabric on AWS",
        "take the libfabric of the same EFA installer, 1.22 or later",
        f"{_NOTES} (v1.15.0 and later); src/nccl_ofi_net.cpp",
    ),
    Rule(
        {"libfabric": ">=2.0", "rdma_core": "<51"},
        "libfabric does not load: \"version 'EFA_1.4' not found\" in libefa.so.1",
        "run the whole EFA installer in the final stage: it brings its own rdma-core",
        f"{_GITHUB}/PrimeIntellect-ai/prime-rl/pull/3454",
    ),
    Rule(
        {"aws_ofi_nccl": "==1.12.0"},
        "significant loss of speed or crashes on newer EFA drivers",
        "take aws-ofi-nccl 1.12.1 or later",
        f"{_NOTES} (v1.12.1), {_GITHUB}/awslabs/awsome-distributed-ai/pull/466",
    ),
    Rule(
        {"aws_ofi_nccl": "==1.18.0"},
        "large broadcasts between nodes hang",
        "take EFA installer 1.49.0 or later, which has aws-ofi-nccl 1.20.0",
        f"{_GITHUB}/aws/deep-learning-containers/pull/6668",
    ),
    Rule(
        {"aws_ofi_nccl": "<1.17.1", "cuda": ">=13"},
        "the plugin is made for CUDA 12",
        "take aws-ofi-nccl 1.17.1 or later",
        f"{_NOTES} (v1.17.1)",
    ),
    Rule(
        {"aws_ofi_nccl": ">=1.15.0", "nccl": "<2.17.1"},
        "the plugin has no interface that this NCCL knows",
        "take NCCL 2.17.1 or later",
        f"{_NOTES} (v1.15.0 and later)",
    ),
    Rule(
        {"aws_ofi_nccl": "<1.17.2", "nccl": ">=2.28,<2.29"},
        "NCCL crashes where libfabric does not start",
        "take aws-ofi-nccl 1.17.2 or later",
        f"{_NOTES} (v1.17.2)",
    ),
    Rule(
        {"aws_ofi_nccl": "<1.20.0"},
        "memory leaks that end long runs on p4d and g5",
        "take EFA installer 1.49.0 or later, which has aws-ofi-nccl 1.20.0",
        f"{_NOTES} (v1.17.3, v1.20.0)",
        "warning",
    ),
    Rule(
        {"efa_installer": "==1.40.0"},
        "it stops with 'unknown package found' where debug packages are asked for",
        "take another release of the EFA installer",
        f"{_GITHUB}/aws/aws-ofi-nccl/issues/872",
    ),
    Rule(
        {"cuda": ">=13", "driver": "<580"},
        "CUDA does not start: the driver is older than CUDA 13 takes",
        "take an AMI release with driver 580 or later, or an image with CUDA 12",
        "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
    ),
    Rule(
        {"cuda": ">=12,<13", "driver": "<525.60.13"},
        "CUDA does not start: the driver is older than CUDA 12 takes",
        "take an AMI release with driver 525.60.13 or later",
        "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
    ),
    Rule(
        {"megatron_core": ">=0.17", "nvidia_resiliency_ext": "<0.6"},
        "Megatron core imports what this nvidia-resiliency-ext lacks",
        "take nvidia-resiliency-ext 0.6.0",
        f"{_GITHUB}/NVIDIA/Model-Optimizer/pull/1285",
    ),
    Rule(
        {"megatron_core": ">=0.17", "python": "<3.12"},
        "the package asks for Python 3.12",
        "take a base image with Python 3.12",
        "https://pypi.org/project/megatron-core/0.17.0/ (requires-python)",
    ),
    *_pair("0.4", "0.5", "0.17", "0.18"),
    *_pair("0.5", "0.6", "0.18", "0.19"),
    *_pair("0.6", "0.7", "0.19", "0.20"),
    *(
        Rule(
            {"megatron_bridge": ">=0.6,<0.7", "transformers": wrong},
            "Megatron-Bridge 0.6 asks for transformers 5.8 to 5.12.1",
            "take transformers 5.12.1",
            "https://pypi.org/project/megatron-bridge/0.6.2/ (requires-dist)",
        )
        for wrong in ("<5.8", ">5.12.1")
    ),
    *(
        Rule(
            {name: f"<{least}"},
            f"AWS's own examples are tested with {least} and later",
            f"take {least} or later",
            f"{_GITHUB}/awslabs/awsome-distributed-ai, .github/workflows",
            "warning",
        )
        for name, least in (("efa_installer", "1.47.0"), ("nccl", "2.28"), ("cuda", "13.0"))
    ),
)


def canonical(name: str) -> str | None:
    """Return the name that rules use for what somebody calls a component; None: unknown."""
    plain = name.strip().lower().replace("-", "_").removesuffix("_version")
    if plain in NAMES:
        return plain
    return next((each for each, others in NAMES.items() if plain in others), None)


def is_version(text: str) -> bool:
    """Tell whether a version starts with a number."""
    return _LEADING.match(text) is not None


def completed(versions: Mapping[str, str]) -> dict[str, str]:
    """Add what the EFA installer of a set is known to bring."""
    return {**INSTALLER_BRINGS.get(versions.get("efa_installer", ""), {}), **versions}


def broken_rules(versions: Mapping[str, str]) -> list[Rule]:
    """Return the rules that a set of versions breaks, errors first."""
    found = [rule for rule in RULES if rule.holds(completed(versions))]
    return sorted(found, key=lambda rule: rule.level)


def compare(left: str, right: str) -> int:
    """Compare the leading numbers of two versions: -1, 0 or 1."""
    one, other = _numbers(left), _numbers(right)
    length = max(len(one), len(other))
    padded = [each + (0,) * (length - len(each)) for each in (one, other)]
    return (padded[0] > padded[1]) - (padded[0] < padded[1])


def _numbers(version: str) -> Version:
    match = _LEADING.match(version)
    if match is None:
        raise ValueError(f"{version!r} starts with no number")
    return tuple(int(part) for part in match[1].split("."))


def _holds(version: str, condition: str) -> bool:
    match = _CONDITION.fullmatch(condition)
    assert match is not None, condition  # noqa: S101 -- a slip in the table above
    order = compare(version, match[2])
    return {
        "<": order < 0,
        "<=": order <= 0,
        "==": order == 0,
        ">=": order >= 0,
        ">": order > 0,
    }[match[1]]
