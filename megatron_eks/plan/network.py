"""The plan of the VPC."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from megatron_eks.plan.subnets import Subnet, carve

if TYPE_CHECKING:
    from megatron_eks.config.cluster import ClusterConfig


@dataclass(frozen=True)
class NetworkPlan:
    """The VPC."""

    vpc_cidr: str
    service_cidr: str
    subnets: tuple[Subnet, ...]
    nat_zones: tuple[str, ...]
    """Zones whose public subnet holds a NAT gateway; the others route through the first."""
    interface_endpoints: tuple[str, ...]

    def nat_zone(self, zone: str) -> str | None:
        """Return the zone whose NAT gateway a zone's private subnet uses, if there is one."""
        return zone if zone in self.nat_zones else next(iter(self.nat_zones), None)


def plan_network(config: "ClusterConfig") -> NetworkPlan:
    """Plan the VPC of a configuration that has passed the checks."""
    network = config.network
    zones = config.availability_zones
    nat_zones: dict[object, tuple[str, ...]] = {0: (), 1: zones[:1], "per_zone": zones}
    return NetworkPlan(
        vpc_cidr=network.vpc_cidr,
        service_cidr=network.service_cidr,
        subnets=carve(network.vpc_cidr, zones),
        nat_zones=nat_zones[network.nat_gateways],
        interface_endpoints=network.interface_endpoints,
    )
