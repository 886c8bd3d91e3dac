"""Rules over the subnets that Fn::Cidr draws from a larger range."""

import ipaddress
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.cloudformation.networks import networks_of
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import number, written

_KEYS = {"CidrBlock": 32, "Ipv6CidrBlock": 128}
_ARGUMENTS = 3
# CloudFormation User Guide, "Fn::Cidr"; EC2 API, CreateSubnet.
_MOST_BLOCKS = 256
_BITS_OF_SUBNETS = range(4, 17)


@dataclass(frozen=True)
class _Drawn:
    """A block that a subnet takes of those that Fn::Cidr makes."""

    subnet: Resource
    key: str
    source: str
    """What the blocks are made of, equal for equal ones."""
    base: Json
    place: int
    count: int
    bits: int

    @property
    def first(self) -> int:
        """The first address, counted from the beginning of the base."""
        return self.place << self.bits

    @property
    def last(self) -> int:
        """The last address, counted in the same way."""
        return ((self.place + 1) << self.bits) - 1

    def find(self, found: str, remedy: str) -> Finding:
        """Report something about the block."""
        path: Path = (self.key,)
        return self.subnet.find(Code.SUBNETS, path, found, remedy)


def drawn(templates: TemplateSet) -> Iterator[Finding]:
    """Require of subnets that are drawn from one range blocks that exist, and each its own.

    CloudFormation User Guide, "Fn::Cidr" and "Fn::Select": the blocks lie one behind the other from
    the beginning of the range, so a place taken twice is a range taken twice (EC2 API,
    CreateSubnet, InvalidSubnet.Conflict); counts and places beyond the range are refused.
    """
    known = [
        each
        for subnet in templates.resources("AWS::EC2::Subnet")
        for each in _of(subnet, templates)
    ]
    for each in known:
        yield from _alone(each, templates)
    for one, other in combinations(known, 2):
        same = one.key == other.key and one.source == other.source
        if not same or one.last < other.first or other.last < one.first:
            continue
        if _either(one.subnet, other.subnet):
            continue
        of_place = f"place {other.place} of {other.count} blocks of {other.bits} bits"
        found = f"{of_place} overlaps the range of {one.subnet.id}: EC2 refuses the second"
        yield other.find(found, "select a place that no other subnet takes")


def _alone(each: _Drawn, templates: TemplateSet) -> Iterator[Finding]:
    if each.place >= each.count:
        found = f"place {each.place} of {each.count} blocks: the first is 0, so there is none"
        yield each.find(found, f"write {each.count - 1} or less, or a larger count")
        return
    if each.key != "CidrBlock":
        return
    if each.bits not in _BITS_OF_SUBNETS:
        found = f"blocks of {each.bits} bits are /{32 - each.bits}, and a subnet is /16 to /28"
        yield each.find(found, "write 4 to 16 bits: 12 for /20")
        return
    target = templates.target(each.base, each.subnet.file)
    of_vpc = target is not None and target.type == "AWS::EC2::VPC"
    value = target.properties.get("CidrBlock") if target is not None and of_vpc else each.base
    for base in networks_of(value, target if target and of_vpc else each.subnet, templates):
        room = base.num_addresses >> each.bits
        if isinstance(base, ipaddress.IPv4Network) and each.count > room:
            found = f"{each.count} blocks of {each.bits} bits, and {base} has room for {room}"
            yield each.find(found, f"write {room} or less, or fewer bits")
            return


def _of(subnet: Resource, templates: TemplateSet) -> Iterator[_Drawn]:
    for key, size in _KEYS.items():
        vpc = subnet.properties.get("VpcId")
        chosen = _arguments(subnet.properties.get(key), "Fn::Select")
        made = _arguments(chosen[1], "Fn::Cidr") if len(chosen) > 1 else []
        if len(made) != _ARGUMENTS:
            continue
        place, count, bits = number(chosen[0]), number(made[1]), number(made[2])
        if place is None or count is None or bits is None or not 0 < count <= _MOST_BLOCKS:
            continue
        if place >= 0 and 0 < bits < size:
            said = [_plain(made[0], subnet, templates), _plain(vpc, subnet, templates)]
            source = f"{subnet.file} {json.dumps(said, sort_keys=True)}"
            yield _Drawn(subnet, key, source, made[0], place, count, bits)


def _arguments(value: Json, function: str) -> list[Json]:
    given = value.get(function) if isinstance(value, dict) and len(value) == 1 else None
    return given if isinstance(given, list) else []


def _plain(value: Json, subnet: Resource, templates: TemplateSet) -> Json:
    """Write a VPC's range as its own template does, and Fn::GetAtt in its longer way."""
    name = written(value) or ""
    target = templates.target(value, subnet.file)
    if target is not None and target.type == "AWS::EC2::VPC" and name.endswith(".CidrBlock}"):
        return target.properties.get("CidrBlock")
    return name if target is not None else value


def _either(one: Resource, other: Resource) -> bool:
    """Tell that two may be made in different cases only."""
    names = [each.body.get("Condition") for each in (one, other)]
    return None not in names and names[0] != names[1]
