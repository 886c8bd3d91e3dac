"""A VPC, subnets, groups and keys that exist already."""

from dataclasses import replace

import pytest

from megatron_eks.ops.cluster.account.facts import FileSystem, Group, Rule, Subnet
from tests.ops.aws.preflight.subjects import EKS, project, subject, told, with_keys

GROUP, OTHER = "sg-0123456789abcdef0", "sg-0123456789abcdef1"
VPC = "vpc-0123456789abcdef0"
SUBNETS = {f"us-east-2{zone}": f"subnet-0123456789abcdef{zone}" for zone in "abc"}
EXISTING = {
    "id": "fs-0123456789abcdef0",
    "dns_name": "fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com",
    "mount_name": "abcdefgh",
}
_ALL_TO = Rule("-1", 0, 65535, GROUP)
_ANYWHERE = Rule("-1", 0, 65535, "0.0.0.0/0")
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


def facts(**values):
    """Return an account in which everything that is named exists."""
    group = Group(GROUP, VPC, (_ALL_TO,), (_ALL_TO,))
    subnets = {number: Subnet(number, VPC, zone, 5000) for zone, number in SUBNETS.items()}
    there = {
        "vpcs": {VPC: True},
        "subnets": subnets,
        "groups": {GROUP: group},
        "cluster": EKS,
    }
    return there | values


def of(brought, **values):
    """Return what is told, except of images: none is built."""
    found = told(subject(brought, **values))
    found.pop("images", None)
    return found


def test_what_exists_as_it_is_named_is_no_finding(brought):
    """Nor are its rules."""
    assert of(brought, **facts()) == {}


def test_a_vpc_of_nobody_is_an_error(brought):
    """And nothing is said of what would be in it."""
    found = of(brought, **facts(vpcs={VPC: False}, subnets={}, groups={}))
    assert found[_BROUGHT] == [f"error MEKS-0832 there is no VPC {VPC} in us-east-2 - correct it"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"zone": "us-east-2a"}, "is in us-east-2a - write it under us-east-2a"),
        ({"vpc": "vpc-2"}, f"is in vpc-2, and not in {VPC} - name a subnet of that VPC"),
    ],
)
def test_a_subnet_elsewhere_says_where(brought, change, text):
    """A pool would start in another zone, or network."""
    number = SUBNETS["us-east-2b"]
    subnets = facts()["subnets"]
    subnets[number] = replace(subnets[number], **change)
    found = of(brought, **facts(subnets=subnets))
    assert found[_BROUGHT] == [f"error MEKS-0832 {number} {text}"]


def test_a_subnet_or_group_that_is_missing_is_named(brought):
    """Each of them."""
    subnets = facts()["subnets"]
    del subnets[SUBNETS["us-east-2b"]]
    found = of(brought, **facts(subnets=subnets, groups={}))
    assert [line.split(" in us")[0] for line in found[_BROUGHT]] == [
        f"error MEKS-0832 there is no subnet {SUBNETS['us-east-2b']}",
        f"error MEKS-0832 there is no security group {GROUP}",
    ]


def test_efa_needs_the_rule_to_itself_both_ways(brought):
    """Egress to every address is not enough for EFA."""
    group = Group(GROUP, VPC, (_ALL_TO,), (_ANYWHERE,))
    (line,) = of(brought, **facts(groups={GROUP: group}))[_RULES]
    assert line == (
        f"error MEKS-0833 {GROUP} has no rule for all traffic to itself, so EFA does not work - "
        f"aws ec2 authorize-security-group-egress --group-id {GROUP} --ip-permissions "
        f"'IpProtocol=-1,UserIdGroupPairs=[{{GroupId={GROUP}}}]'"
    )
    neither = Group(GROUP, VPC, (_ANYWHERE,), (_ANYWHERE,))
    assert len(of(brought, **facts(groups={GROUP: neither}))[_RULES]) == 2


def file_system(*rules):
    """Return the file system with a group of its own, which has some rules."""
    own = Group(OTHER, VPC, rules, ())
    system = FileSystem(
        EXISTING["id"],
        "AVAILABLE",
        "",
        "LUSTRE",
        1200,
        EXISTING["dns_name"],
        EXISTING["mount_name"],
        (),
        (own,),
    )
    return {EXISTING["id"]: system}


@pytest.mark.parametrize("peer", [GROUP, "10.0.0.0/16"])
def test_lustre_is_open_to_the_nodes_by_group_or_address(brought, peer):
    """Both are usual."""
    systems = file_system(Rule("tcp", 988, 988, peer), Rule("tcp", 1018, 1023, peer))
    assert of(brought, **facts(file_systems=systems)) == {}


@pytest.mark.parametrize(
    "rule",
    [Rule("tcp", 988, 988, OTHER), Rule("tcp", 443, 443, GROUP), Rule("udp", 988, 988, GROUP)],
)
def test_lustre_that_admits_no_node_is_an_error(brought, rule):
    """A mount would wait for minutes, and fail."""
    (line,) = of(brought, **facts(file_systems=file_system(rule)))[_RULES]
    assert line == (
        f"error MEKS-0833 {OTHER} opens TCP 988 and 1018-1023 for nobody of the nodes ({GROUP}) - "
        "open TCP 988 and 1018-1023 to the nodes' security group, both ways"
    )


def test_too_few_addresses_for_the_nodes_is_an_error(brought):
    """Each takes 21: its own, and those kept for pods."""
    number = SUBNETS["us-east-2b"]
    subnets = facts()["subnets"]
    subnets[number] = replace(subnets[number], free=41)
    (line,) = of(brought, **facts(subnets=subnets))["free addresses"]
    assert "MEKS-0828 41 addresses are free, and 2 more nodes take 42 - " in line
    subnets[number] = replace(subnets[number], free=42)
    assert of(brought, **facts(subnets=subnets)) == {}


def test_rules_of_the_default_group_are_a_warning(brought):
    """CloudFormation cannot remove them."""
    group = Group("sg-default", VPC, (Rule("-1", 0, 65535, "sg-default"),), (_ANYWHERE,))
    (line,) = of(brought, **facts(default_group=group))["default security group"]
    assert line.startswith("warning MEKS-0831 it lets 1 rule in and 1 out - aws ec2 describe-")
    closed = Group("sg-default", VPC, (), ())
    assert of(brought, **facts(default_group=closed)) == {}


@pytest.mark.parametrize(
    ("state", "text"),
    [("", "there is no key"), ("PendingDeletion", "is PendingDeletion - name a key that is")],
)
def test_a_key_that_cannot_encrypt_is_an_error(brought, state, text):
    """The file system would not be made."""
    key = "arn:aws:kms:us-east-2:123456789012:key/1"
    (line,) = of(brought, **facts(keys={key: state}))[_BROUGHT]
    assert text in line


def test_what_will_be_made_on_a_file_system_that_exists_is_said_before(brought):
    """Until there is a cluster, in which the Job itself can be looked at."""
    (line,) = of(brought, **facts(cluster=None))[_BROUGHT]
    assert line == (
        "warning MEKS-0856 it exists, and the set-up Job of `meks apply` makes what is missing of "
        "/shared/data, /shared/tokenizer, /shared/checkpoints, /shared/logs, /shared/cache, for "
        "user 10001, and changes nothing else - see that nothing of others has these names; or set "
        "path, a folder of yours"
    )
