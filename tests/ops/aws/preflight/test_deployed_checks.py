"""What is deployed already: cluster, add-ons, node groups, file systems, images."""

import pytest

from tests.ops.aws.preflight.subjects import (
    EKS,
    NODES,
    SYSTEM,
    deployed,
    gone,
    project,
    told,
)


@pytest.fixture
def found(tmp_path):
    """Return a project."""
    return project(tmp_path)


def of(found, cluster=EKS, **answers):
    """Return what is told of a deployed cluster."""
    return told(found, deployed(found), describe_cluster={"cluster": cluster}, **answers)


def versions(**described):
    """Return what EKS says of the version of Kubernetes."""
    return {"describe_cluster_versions": {"clusterVersions": [described]}}


def test_a_deployed_cluster_that_works_is_no_finding(found):
    """As it is right after `meks deploy` and `meks build`."""
    assert of(found) == {}


@pytest.mark.parametrize(
    ("bounds", "refused"),
    [(("10m", "24h"), False), (("", ""), False), (("2h", "24h"), True), (("5m", "30m"), True)],
)
def test_events_live_within_the_bounds_of_eks(found, bounds, refused):
    """They are read, for no document gives them; where EKS does not tell, nothing is refused."""
    least, most = bounds
    ttl = {"constraints": {"min": least, "max": most} if least else {}}
    server = {"kubeApiServerConfig": {"eventTtl": ttl}}
    answer = versions(controlPlaneComponentConfig=server)
    lines = of(found, **answer).get("Kubernetes version supported", [])
    assert [line[:15] for line in lines] == ["error MEKS-0888"] * refused


def test_a_version_that_eks_does_not_offer_is_an_error(found):
    """A region may be late."""
    lines = of(found, describe_cluster_versions={"clusterVersions": []})
    (line,) = lines["Kubernetes version supported"]
    assert line.startswith("error MEKS-0830 EKS in us-east-2 offers no 1.36 - ")


@pytest.mark.parametrize(
    ("status", "level"),
    [("CREATING", "error"), ("UPDATING", "warning"), ("FAILED", "error"), ("DELETING", "error")],
)
def test_a_cluster_that_is_busy_says_so(found, status, level):
    """What changes it is refused meanwhile."""
    (line,) = of(found, cluster=EKS | {"status": status})["EKS cluster"]
    assert line.startswith(f"{level} MEKS-0836 it is {status} - wait")


def test_health_issues_and_another_version_are_told(found):
    """Both, at once."""
    issue = {"code": "Ec2SecurityGroupNotFound", "message": "sg-1 does not exist"}
    cluster = EKS | {"health": {"issues": [issue]}, "version": "1.34"}
    lines = of(found, cluster=cluster)["EKS cluster"]
    said = "Ec2SecurityGroupNotFound: sg-1 does not exist"
    assert lines[0].startswith(f"error MEKS-0836 {said} - ")
    assert lines[1].startswith("error MEKS-0836 it runs 1.34, and the file says 1.36 - ")


@pytest.mark.parametrize(
    ("addon", "text"),
    [
        (None, "error MEKS-0837 not installed - run: meks deploy"),
        (
            {
                "status": "DEGRADED",
                "addonVersion": "v1.9.0-eksbuild.1",
                "health": {
                    "issues": [{"code": "InsufficientNumberOfReplicas", "message": "0 of 2"}]
                },
            },
            (
                "error MEKS-0837 it is DEGRADED; InsufficientNumberOfReplicas: 0 of 2 - see to "
                "that, "
                "then run: meks deploy"
            ),
        ),
        (
            {"status": "ACTIVE", "addonVersion": "v1.8.0-eksbuild.1"},
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

    def line(described):
        (only,) = of(found, describe_nodegroup=described)["node groups"]
        return only

    issue = {"code": "AsgInstanceLaunchFailures", "message": "no p4d"}
    group = NODES | {"status": "DEGRADED", "health": {"issues": [issue]}}
    told_of = line({"nodegroup": group})
    assert told_of.startswith("error MEKS-0838 AsgInstanceLaunchFailures: no p4d - ")
    bad = line({"nodegroup": NODES | {"releaseVersion": "1.35.8-20260930"}})
    assert bad.startswith("error MEKS-0838 its nodes run 1.35.8-20260930: kernel 6.12.110 panics")
    missing = line(gone("ResourceNotFoundException"))
    assert missing.startswith("error MEKS-0838 there is no such node group - run: meks deploy")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {
                "Lifecycle": "MISCONFIGURED",
                "FailureDetails": {"Message": "the route to S3 is gone"},
            },
            "error MEKS-0834 it is MISCONFIGURED: the route to S3 is gone - see to it",
        ),
        (
            {"FileSystemType": "WINDOWS"},
            "error MEKS-0834 it is an FSx file system of type WINDOWS",
        ),
        (
            {"LustreConfiguration": {"MountName": "wxyz"}},
            "error MEKS-0834 it is fs-1.fsx.us-east-2.amazonaws.com with mount name wxyz - write",
        ),
        (
            {"StorageCapacity": 600},
            "warning MEKS-0834 it has 600 GiB, and the file says 1200",
        ),
    ],
)
def test_a_file_system_is_compared_with_the_file(found, change, text):
    """State, kind, names and size."""
    answer = {"FileSystems": [SYSTEM | change]}
    (line,) = of(found, describe_file_systems=answer)["file systems"]
    assert line.startswith(text)


def test_a_file_system_that_is_gone_is_an_error(found):
    """Outputs of an older deployment name it still."""
    answer = gone("FileSystemNotFound")
    (line,) = of(found, describe_file_systems=answer)["file systems"]
    assert line.startswith("error MEKS-0834 there is none in us-east-2 - write the outputs anew")


def test_an_image_that_ecr_lost_is_an_error(found):
    """A lifecycle rule, or somebody, removed it; pods would not start."""
    uri = deployed(found).images["fsdp"].uri
    assert of(found, describe_images=gone("ImageNotFoundException"))["images"] == [
        f"error MEKS-0835 there is no {uri} - build it: meks build"
    ]
