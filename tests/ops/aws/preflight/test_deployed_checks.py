"""What is deployed already: cluster, add-ons, node groups, file systems, images."""

from dataclasses import replace
from datetime import date

import pytest

from megatron_eks.ops.cluster.account.facts import Addon, FileSystem
from megatron_eks.ops.cluster.node_groups import NodeGroup
from tests.ops.aws.preflight.subjects import EKS, deployed, project, subject, told

SYSTEM = FileSystem(
    "fs-1",
    "AVAILABLE",
    "",
    "LUSTRE",
    1200,
    "fs-1.fsx.us-east-2.amazonaws.com",
    "abcd",
    (),
    (),
)


@pytest.fixture
def found(tmp_path):
    """Return a project."""
    return project(tmp_path)


def of(found, **facts):
    """Return what is told of a deployed cluster."""
    return told(subject(found, outputs=deployed(found), **({"cluster": EKS} | facts)))


def test_a_deployed_cluster_that_works_is_no_finding(found):
    """As it is right after `meks deploy` and `meks build`."""
    assert of(found, file_systems={"fs-1": SYSTEM}) == {}


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        (date(2027, 1, 20), "ends on 2027-01-20"),
        (date(2026, 11, 21), "ended on 2026-11-21"),
    ],
)
def test_support_that_ends_soon_is_a_warning(found, ends, text):
    """EKS says it, whatever this release knows."""
    (line,) = of(found, support_ends=ends)["Kubernetes version supported"]
    assert line.startswith(f"warning MEKS-0830 standard support of 1.36 {text} - ")
    assert of(found, support_ends=date(2027, 1, 21)) == {}


@pytest.mark.parametrize(
    ("bounds", "refused"),
    [(("10m", "24h"), False), (("", ""), False), (("2h", "24h"), True), (("5m", "30m"), True)],
)
def test_events_live_within_the_bounds_of_eks(found, bounds, refused):
    """They are read, for no document gives them; where EKS does not tell, nothing is refused."""
    lines = of(found, event_ttl=bounds).get("Kubernetes version supported", [])
    assert [line[:15] for line in lines] == ["error MEKS-0888"] * refused


def test_a_version_that_eks_does_not_offer_is_an_error(found):
    """A region may be late."""
    (line,) = of(found, offers_version=False)["Kubernetes version supported"]
    assert line.startswith("error MEKS-0830 EKS in us-east-2 offers no 1.36 - ")


@pytest.mark.parametrize(
    ("status", "level"),
    [("CREATING", "error"), ("UPDATING", "warning"), ("FAILED", "error"), ("DELETING", "error")],
)
def test_a_cluster_that_is_busy_says_so(found, status, level):
    """What changes it is refused meanwhile."""
    (line,) = of(found, cluster=replace(EKS, status=status))["EKS cluster"]
    assert line.startswith(f"{level} MEKS-0836 it is {status} - wait")


def test_health_issues_and_another_version_are_told(found):
    """Both, at once."""
    issue = "Ec2SecurityGroupNotFound: sg-1 does not exist"
    lines = of(found, cluster=replace(EKS, issues=(issue,), version="1.34"))["EKS cluster"]
    assert lines[0].startswith(f"error MEKS-0836 {issue} - ")
    assert lines[1].startswith("error MEKS-0836 it runs 1.34, and the file says 1.36 - ")


def test_an_endpoint_out_of_reach_says_from_where(found):
    """The usual reason is another office."""
    cluster = replace(EKS, unreachable="no answer within 5 s")
    assert of(found, cluster=cluster, own_address="9.9.9.9\n")["API endpoint from here"] == [
        (
            "error MEKS-0829 no answer within 5 s - you seem to be 9.9.9.9; it admits "
            "8.8.4.4/32: add "
            "your address to access.public_cidrs and meks deploy"
        )
    ]
    private = replace(cluster, public=False)
    (line,) = of(found, cluster=private)["API endpoint from here"]
    assert line.endswith("the endpoint is private: go the way that access.private_route names")


@pytest.mark.parametrize(
    ("addon", "text"),
    [
        (None, "error MEKS-0837 not installed - run: meks deploy"),
        (
            Addon("DEGRADED", "v1.9.0-eksbuild.1", ("InsufficientNumberOfReplicas: 0 of 2",)),
            (
                "error MEKS-0837 it is DEGRADED; InsufficientNumberOfReplicas: 0 of 2 - see to "
                "that, "
                "then run: meks deploy"
            ),
        ),
        (
            Addon("ACTIVE", "v1.8.0-eksbuild.1", ()),
            (
                "warning MEKS-0837 it is v1.8.0-eksbuild.1, and this release has "
                "v1.9.0-eksbuild.1 - "
                "run: meks deploy"
            ),
        ),
    ],
)
def test_add_ons_are_those_of_the_plan(found, addon, text):
    """Missing, degraded, of another version."""
    assert of(found, addons={"aws-fsx-csi-driver": addon})["add-ons"] == [text]


def test_a_node_group_tells_its_issues(found):
    """In EKS's own words, with the code."""
    group = NodeGroup("p4d", "DEGRADED", 2, 0, 450, (), (("AsgInstanceLaunchFailures", "no p4d"),))
    (line,) = of(found, node_groups={"p4d": group})["node groups"]
    assert line.startswith("error MEKS-0838 AsgInstanceLaunchFailures: no p4d - ")
    bad = replace(group, status="ACTIVE", issues=(), ami_release="1.35.8-20260930")
    (line,) = of(found, node_groups={"p4d": bad})["node groups"]
    assert line.startswith("error MEKS-0838 its nodes run 1.35.8-20260930: kernel 6.12.110 panics")
    (line,) = of(found, node_groups={"p4d": None})["node groups"]
    assert line.startswith("error MEKS-0838 there is no such node group - run: meks deploy")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"state": "MISCONFIGURED", "reason": "the route to S3 is gone"},
            "error MEKS-0834 it is MISCONFIGURED: the route to S3 is gone - see to it",
        ),
        ({"kind": "WINDOWS"}, "error MEKS-0834 it is an FSx file system of type WINDOWS, and"),
        (
            {"mount_name": "wxyz"},
            "error MEKS-0834 it is fs-1.fsx.us-east-2.amazonaws.com with mount name wxyz - write",
        ),
        ({"capacity_gib": 600}, "warning MEKS-0834 it has 600 GiB, and the file says 1200 - run"),
    ],
)
def test_a_file_system_is_compared_with_the_file(found, change, text):
    """State, kind, names and size."""
    (line,) = of(found, file_systems={"fs-1": replace(SYSTEM, **change)})["file systems"]
    assert line.startswith(text)


def test_a_file_system_that_is_gone_is_an_error(found):
    """Outputs of an older deployment name it still."""
    (line,) = of(found, file_systems={"fs-1": None})["file systems"]
    assert line.startswith("error MEKS-0834 there is none in us-east-2 - write the outputs anew")


def test_an_image_that_ecr_lost_is_an_error(found):
    """A lifecycle rule, or somebody, removed it; pods would not start."""
    uri = deployed(found).images["fsdp"].uri
    assert of(found, images={uri: False})["images"] == [
        f"error MEKS-0835 there is no {uri} - build it: meks build"
    ]
