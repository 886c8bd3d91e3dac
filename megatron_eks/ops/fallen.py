"""What became of a cluster of this machine that no longer answers."""

from collections.abc import Mapping
from dataclasses import dataclass

from megatron_eks.localcloud.kubernetes.build import cache_folder
from megatron_eks.localcloud.kubernetes.state import fall_at

REMEDIES = {
    "local": "start it again, which keeps /shared: meks local up",
    "demo": "start it again: make demo",
}
"""By the name of a cluster's folder, how it starts again."""


@dataclass(frozen=True)
class Fall:
    """The end of a cluster that nobody has stopped."""

    reason: str
    remedy: str


def fall_of(address: str, environment: Mapping[str, str]) -> Fall | None:
    """Return how the cluster fell that a user's process meant by an address of this machine."""
    for name, remedy in REMEDIES.items():
        if reason := fall_at(cache_folder(environment) / name, address):
            return Fall(reason, remedy)
    return None
