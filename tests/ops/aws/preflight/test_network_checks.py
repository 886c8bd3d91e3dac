"""A VPC, subnets, groups and keys that exist already."""

import pytest

from tests.ops.aws.preflight.subjects import EKS, SYSTEM, project, told, with_keys

GROUP, OTHER = "sg-0123456789abcdef0", "sg-0123456789abcdef1"
VPC = "vpc-0123456789abcdef0"
SUBNETS = {f"us-east-2{zone}": f"subnet-0123456789abcdef{zone}" for zone in "abc"}
EXISTING = {
    "id": "fs-0123456789abcdef0",
    "dns_name": "fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com",
    "mount_name": "abcdefgh",
}
_ALL_TO = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": GROUP}]}
_ANYWHERE = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
_BROUGHT, _RULES = "what the file brings along", "rules of existing groups"


@pytest.fixture
def brought(tmp_path):
    """Return a project in a VPC that exists, for a cluster that exists."""
    network = {
        "vpc_id": VPC,
        "vpc_cidr": "10.0.0.0/16",
        "private_subnets": SUBNETS,
        "node_security_group_id": GROUP,
    }
    text = with_keys(existing_cluster="theirs", network=network, storage=storage())
    return project(tmp_path, text)


def storage():
    """Return the storage of a cluster file with a file system that exists."""
    return {"lustre": {"existing": EXISTING, "availability_zone": "us-east-2b"}}


def group(number, inward, outward, name="nodes"):
    """Return a security group with its rules, as EC2 describes it."""
    rules = {"IpPermissions": inward, "IpPermissionsEgress": outward}
    return {"GroupId": number, "GroupName": name, **rules}


NODES = group(GROUP, [_ALL_TO], [_ALL_TO])


def subnets(free=5000, number=None, **change):
    """Return the subnets of the file, with so many addresses; one of them with a change."""
    found = [
        {
            "SubnetId": each,
            "VpcId": VPC,
            "AvailabilityZone": zone,
            "AvailableIpAddressCount": free,
            **(change if each == number else {}),
        }
        for zone, each in SUBNETS.items()
    ]
    return {"describe_subnets": {"Subnets": found}}


def of(brought, *groups, **answers):
    """Return what is told where everything that is named exists; not of images: none is built."""

    def described(Filters):  # noqa: N803 -- as EC2 is asked
        (wanted,) = Filters
        by_vpc, values = wanted["Name"] == "vpc-id", wanted["Values"]
        known = groups or (NODES,)
        return {"SecurityGroups": [x for x in known if by_vpc or x["GroupId"] in values]}

    lustre = SYSTEM | {"DNSName": EXISTING["dns_name"]}
    lustre |= {"LustreConfiguration": {"MountName": EXISTING["mount_name"]}}
    interfaces = {"NetworkInterfaces": [{"Groups": [{"GroupId": OTHER}]}]}
    usual = {
        "describe_security_groups": described,
        "describe_cluster": {"cluster": EKS},
        "describe_file_systems": {"FileSystems": [lustre]},
        "describe_network_interfaces": interfaces,
        **subnets(),
    }
    found = told(brought, **usual | answers)
    found.pop("images", None)
    return found


def test_what_exists_as_it_is_named_is_no_finding(brought):
    """Nor are its rules."""
    assert of(brought) == {}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"AvailabilityZone": "us-east-2a"}, "is in us-east-2a - write it under us-east-2a"),
        ({"VpcId": "vpc-2"}, f"is in vpc-2, and not in {VPC} - name a subnet of that VPC"),
    ],
)
def test_a_subnet_elsewhere_says_where(brought, change, text):
    """A pool would start in another zone, or network."""
    number = SUBNETS["us-east-2b"]
    found = of(brought, **subnets(number=number, **change))
    assert found[_BROUGHT] == [f"error MEKS-0832 {number} {text}"]


def test_a_subnet_that_is_missing_is_named(brought):
    """Where all are, CloudFormation names their VPC."""
    there = subnets(number=SUBNETS["us-east-2b"], SubnetId="subnet-other")
    (line,) = of(brought, **there)[_BROUGHT]
    assert line.startswith(f"error MEKS-0832 there is no subnet {SUBNETS['us-east-2b']} in us-")
    assert of(brought, describe_subnets={"Subnets": []}) == {}


def test_efa_needs_the_rule_to_itself_both_ways(brought):
    """Egress to every address is not enough for EFA."""
    (line,) = of(brought, group(GROUP, [_ALL_TO], [_ANYWHERE]))[_RULES]
    assert line == (
        f"error MEKS-0833 {GROUP} has no rule for all traffic to itself, so EFA does not work - "
        f"aws ec2 authorize-security-group-egress --group-id {GROUP} --ip-permissions "
        f"'IpProtocol=-1,UserIdGroupPairs=[{{GroupId={GROUP}}}]'"
    )
    neither = group(GROUP, [_ANYWHERE], [_ANYWHERE])
    assert len(of(brought, neither)[_RULES]) == 2


def tcp(first, last, peer, protocol="tcp"):
    """Return a rule for one peer, a group or a range of addresses."""
    ports = {"IpProtocol": protocol, "FromPort": first, "ToPort": last}
    if peer.startswith("sg-"):
        return ports | {"UserIdGroupPairs": [{"GroupId": peer}]}
    return ports | {"IpRanges": [{"CidrIp": peer}]}


@pytest.mark.parametrize("peer", [GROUP, "10.0.0.0/16"])
def test_lustre_is_open_to_the_nodes_by_group_or_address(brought, peer):
    """Both are usual."""
    own = group(OTHER, [tcp(988, 988, peer), tcp(1018, 1023, peer)], [])
    assert of(brought, NODES, own) == {}


@pytest.mark.parametrize(
    "rule",
    [tcp(988, 988, OTHER), tcp(443, 443, GROUP), tcp(988, 988, GROUP, "udp")],
)
def test_lustre_that_admits_no_node_is_an_error(brought, rule):
    """A mount would wait for minutes, and fail."""
    (line,) = of(brought, NODES, group(OTHER, [rule], []))[_RULES]
    assert line == (
        f"error MEKS-0833 {OTHER} opens TCP 988 and 1018-1023 for nobody of the nodes ({GROUP}) - "
        "open TCP 988 and 1018-1023 to the nodes' security group, both ways"
    )


def test_too_few_addresses_for_the_nodes_is_an_error(brought):
    """Each takes 21: its own, and those kept for pods."""
    (line,) = of(brought, **subnets(free=41))["free addresses"]
    assert "MEKS-0828 41 addresses are free, and 2 more nodes take 42 - " in line
    assert of(brought, **subnets(free=42)) == {}


def test_rules_of_the_default_group_are_a_warning(brought):
    """CloudFormation cannot remove them."""
    to_itself = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": "sg-default"}]}
    default = group("sg-default", [to_itself], [_ANYWHERE], "default")
    (line,) = of(brought, NODES, default)["default security group"]
    assert line.startswith("warning MEKS-0831 it lets 1 rule in and 1 out - aws ec2 describe-")
    assert of(brought, NODES, group("sg-default", [], [], "default")) == {}
