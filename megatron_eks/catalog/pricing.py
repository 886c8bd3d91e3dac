"""List prices in USD; a price nobody could confirm for a region is missing, not guessed.

Sources: EC2: prices.txt, for the bastion's t3.micro too. EFS: aws.amazon.com/efs/pricing. EKS:
AWS's blog "Amazon EKS extended support for Kubernetes versions pricing". FSx and VPC: their pricing
pages; what a SCRATCH_2 GiB costs was confirmed by bills that others published (168 USD a month for
1.2 TB), not by the page itself. A configuration can say what is paid instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date

from megatron_eks.catalog.tables import sections

AS_OF = date(2026, 7, 20)

HOURS_PER_MONTH = 730
# AWS KMS, "Pricing": each key of a customer's.
KEY_USD_PER_MONTH = 1.0

_US_REGIONS = ("us-east-1", "us-east-2", "us-west-2")

_INSTANCE_USD_PER_HOUR = {
    name: float(price)
    for name, price in map(str.split, sections("prices.txt")["instances"].splitlines())
}
_LUSTRE_USD_PER_GIB_MONTH = {125: 0.145, 250: 0.21, 500: 0.34, 1000: 0.60}
_SCRATCH_USD_PER_GIB_MONTH = 0.14
# Amazon Managed Service for Prometheus, "Pricing": the collector, and ten million samples that are
# collected and taken in; the first forty million of a month cost nothing.
_USD_PER_HOUR = {
    "bastion": 0.0104,
    "control_plane": 0.10,
    "endpoint": 0.01,
    "nat": 0.045,
    "scraper": 0.04,
}
SAMPLES_USD = (0.03 + 0.90) / 10_000_000
"""Of one sample."""
EXTENDED_SUPPORT_USD_PER_HOUR = 0.60
"""Of a control plane whose version is past standard support, where its upgrade policy allows it."""

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


@dataclass(frozen=True)
class PriceList:
    """What is paid in one region: list prices, and what a user pays instead of them."""

    region: str
    instances: Mapping[str, float] = field(default_factory=dict)
    """USD an hour, by instance type."""
    own: Mapping[str, float] = field(default_factory=dict)
    """What is paid for the rest, by the keys of the cluster file's `prices`."""

    def instance(self, instance_type: str) -> float | None:
        """USD an hour for one on-demand Linux instance."""
        listed = self._listed(_INSTANCE_USD_PER_HOUR.get(instance_type))
        return self.instances.get(instance_type, listed)

    def lustre(self, throughput_mbps_per_tib: int | None) -> float | None:
        """USD an hour for one GiB of PERSISTENT_2 SSD storage, or with None of SCRATCH_2."""
        tiers, scratch = _LUSTRE_USD_PER_GIB_MONTH, _SCRATCH_USD_PER_GIB_MONTH
        listed = tiers[throughput_mbps_per_tib] if throughput_mbps_per_tib else scratch
        month = self.own.get("lustre_gib_month", self._listed(listed))
        return None if month is None else month / HOURS_PER_MONTH

    def hour(self, item: str) -> float | None:
        """USD an hour for one NAT gateway or another part, traffic and samples not counted.

        The control plane costs the same everywhere.
        """
        price = _USD_PER_HOUR[item]
        listed = price if item == "control_plane" else self._listed(price)
        return self.own.get(f"{item}_hour", listed)

    def _listed(self, price: float | None) -> float | None:
        return price if self.region in _US_REGIONS else None
