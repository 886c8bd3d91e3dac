"""On-demand list prices in USD; a price nobody could confirm for a region is missing, not guessed.

Sources: EC2 price list as Karpenter generates it (zz_generated.pricing_aws.go, 2026-07-20), FSx,
EKS and VPC pricing pages. The project's issue tracker takes corrections.
"""

from dataclasses import dataclass
from datetime import date

AS_OF = date(2026, 7, 20)

HOURS_PER_MONTH = 730

_US_REGIONS = ("us-east-1", "us-east-2", "us-west-2")

# The three US regions share list prices for these types.
_INSTANCE_USD_PER_HOUR: dict[str, float] = {
    "p4d.24xlarge": 21.957642,
    "p4de.24xlarge": 27.44705,
    "c5.2xlarge": 0.34,
    "c5.4xlarge": 0.68,
    "c6i.2xlarge": 0.34,
    "c6i.4xlarge": 0.68,
    "m5.2xlarge": 0.384,
    "m5.4xlarge": 0.768,
    "m6i.2xlarge": 0.384,
    "m6i.4xlarge": 0.768,
}
_LUSTRE_USD_PER_GIB_MONTH = {125: 0.145, 250: 0.21, 500: 0.34, 1000: 0.60}
_SCRATCH_USD_PER_GIB_MONTH = 0.14
_BASTION_USD_PER_HOUR = 0.0104
_NAT_USD_PER_HOUR = 0.045
_ENDPOINT_USD_PER_HOUR = 0.01
CONTROL_PLANE_USD_PER_HOUR = 0.10

EFS_USD_PER_GIB_MONTH = 0.30
"""Of what EFS Standard holds, in the three US regions; reading and writing cost too."""


@dataclass(frozen=True)
class Price:
    """USD an hour, or None where the price is not known for the region."""

    item: str
    count: float
    usd_per_hour: float | None

    @property
    def total(self) -> float | None:
        """USD an hour for all of them."""
        return None if self.usd_per_hour is None else self.count * self.usd_per_hour


def instance_price(instance_type: str, region: str) -> float | None:
    """USD an hour for one on-demand Linux instance."""
    return _INSTANCE_USD_PER_HOUR.get(instance_type) if region in _US_REGIONS else None


def lustre_price(throughput_mbps_per_tib: int, region: str) -> float | None:
    """USD an hour for one GiB of PERSISTENT_2 SSD storage."""
    if region not in _US_REGIONS:
        return None
    return _LUSTRE_USD_PER_GIB_MONTH[throughput_mbps_per_tib] / HOURS_PER_MONTH


def scratch_price(region: str) -> float | None:
    """USD an hour for one GiB of SCRATCH_2 storage."""
    return _SCRATCH_USD_PER_GIB_MONTH / HOURS_PER_MONTH if region in _US_REGIONS else None


def bastion_price(region: str) -> float | None:
    """USD an hour for the instance that forwards to a private endpoint."""
    return _BASTION_USD_PER_HOUR if region in _US_REGIONS else None


def nat_price(region: str) -> float | None:
    """USD an hour for one NAT gateway, traffic not counted."""
    return _NAT_USD_PER_HOUR if region in _US_REGIONS else None


def endpoint_price(region: str) -> float | None:
    """USD an hour for one interface endpoint in one zone, traffic not counted."""
    return _ENDPOINT_USD_PER_HOUR if region in _US_REGIONS else None
