"""Every example, and what no example has: deployed, deployed again, and deleted."""

import pytest

from megatron_eks.config.load import read_mapping
from tests import examples, variations
from tests.annex.aws.brought import bring
from tests.annex.aws.stacks import Stacks
from tests.stacks.synthesis import cluster_file, synthesise, write_sources

# No command line runs here, but half a minute is too long for the inner loop.
pytestmark = pytest.mark.tools

PARTS = ("Network", "Storage", "Images", "Cluster", "Observability")


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Return what images are built from."""
    return write_sources(tmp_path_factory.mktemp("sources") / "assets")


def _long(name):
    """Leave alone what the life of the default cluster shows, but for what it has not."""
    usual = name not in {"existing-cluster", "private-cluster", "two-teams"}
    return pytest.param(name, marks=pytest.mark.long) if usual else name


def everything(cluster):
    """Have two zones, EFS, and no way out but a bastion, which no example has."""
    for edit in (
        variations.two_zones,
        variations.homes,
        variations.without_a_way_out,
    ):
        edit(cluster)


def linked(cluster):
    """Link folders with S3, and build from GitHub."""
    variations.repositories(cluster)
    variations.github(cluster)


def described(name, folder):
    """Return a cluster file: an example, or the default one with changes."""
    if name in examples.NAMES:
        return read_mapping(examples.copy(name, folder).read_text(), "cluster.yaml").value
    cluster = cluster_file()
    {"everything": everything, "linked": linked}[name](cluster)
    return cluster


@pytest.mark.parametrize("name", [*map(_long, examples.NAMES), "everything", "linked"])
def test_a_cluster_comes_and_goes(aws, sources, tmp_path, name):
    """Each stack is made of its template, is the same when asked for again, and is deleted."""
    cluster = bring(aws, described(name, tmp_path / "example"))
    cluster["access"]["deletion_protection"] = False
    cluster["storage"]["retain"] = False
    assembly = synthesise(cluster, sources, tmp_path / "out")
    templates = assembly.templates()
    names = {part: assembly.plan.stack(part) for part in PARTS if part in templates}
    region = cluster["region"]
    stacks = Stacks(aws.client("cloudformation", region))
    aws.client("ssm", region).put_parameter(
        Name="/cdk-bootstrap/hnb659fds/version", Value="30", Type="String", Overwrite=True
    )
    for part, stack in names.items():
        body = templates[part].body
        resources = body.pop("Resources")
        assert stacks.create(stack, resources, **body) == "CREATE_COMPLETE", stacks.reasons(
            stack, "CREATE_FAILED"
        )
        assert stacks.changes(stack, resources, **body) == []
    for part in reversed(names):
        assert stacks.delete(names[part]) == "DELETE_COMPLETE", part
    _sweep(aws, region)


def _sweep(aws, region):
    """Delete what outlives its stack in every case, and what stands for the bootstrap."""
    aws.client("ssm", region).delete_parameter(Name="/cdk-bootstrap/hnb659fds/version")
    ecr = aws.client("ecr", region)
    for each in ecr.describe_repositories()["repositories"]:
        ecr.delete_repository(repositoryName=each["repositoryName"], force=True)
    assert aws.client("eks", region).list_clusters()["clusters"] in ([], ["lab-eks"])
    assert aws.client("fsx", region).describe_file_systems()["FileSystems"] == []
