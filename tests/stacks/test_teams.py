"""What teams have in AWS: roles that reach their own prefix, and people that reach no more."""

import pytest

from tests.stacks import synthesis
from tests.stacks.synthesis import FILLED, cluster_file, linted, synthesise
from tests.stacks.test_job_role import saving
from tests.variations import teams

ACTIONS = (
    *("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"),
    *("s3:GetObjectVersion", "s3:DeleteObjectVersion", "s3:PutObjectAcl", "s3:RestoreObject"),
)
MINE, THEIRS = "teams/vision/run/model.pt", "teams/nlp/run/model.pt"


def allows(role, action, key="", prefix=""):
    """Tell whether a role may do something with a key of the bucket, or with the bucket."""
    resource = f"{FILLED['Bucket']}/{key}" if key else FILLED["Bucket"]
    return synthesis.allows(role, action, resource, {"s3:prefix": prefix})


@pytest.fixture(scope="module")
def shared(sources, tmp_path_factory):
    """Return the assembly of a cluster whose first team has been there before."""
    cluster = cluster_file()
    teams(cluster)
    job = saving("s3://models/runs/cpt/").model_copy(update={"team": "vision"})
    return synthesise(cluster, sources, tmp_path_factory.mktemp("teams"), [job])


@pytest.fixture(scope="module")
def roles(shared):
    """Return the roles of jobs by team."""
    found = shared.template("Storage").of_type("AWS::IAM::Role")
    return {name: body["Properties"] for name, body in found.items() if name.startswith("JobRole")}


def test_a_team_keeps_its_own_prefix_and_touches_no_other(roles):
    """With every action on objects, and by names that begin as its own does."""
    vision = roles["JobRolevision"]
    assert [each for each in ACTIONS if allows(vision, each, MINE)] == list(ACTIONS[:4])
    for key in (THEIRS, "data/corpus.jsonl", "teams/vision-2/x", "teams/vision", "x", "teams/"):
        assert not any(allows(vision, each, key) for each in ACTIONS), key


def test_a_team_lists_its_own_prefix_alone(roles):
    """A list without a prefix would tell what all others have."""
    listed = [
        prefix
        for prefix in ("", "t", "teams/", "teams/nlp/", "data/", "teams/vision-2/", "teams/vision/")
        if allows(roles["JobRolevision"], "s3:ListBucket", prefix=prefix)
    ]
    assert listed == ["teams/vision/"]
    assert not allows(roles["JobRolevision"], "s3:ListBucketVersions", prefix="teams/vision/")


def test_the_first_team_keeps_what_was_pushed_and_reads_no_other_team(roles):
    """Its jobs that run were started with `data/`."""
    nlp = roles["JobRole"]
    assert allows(nlp, "s3:GetObject", "data/corpus.jsonl")
    assert not allows(nlp, "s3:PutObject", "data/corpus.jsonl")
    assert allows(nlp, "s3:PutObject", THEIRS)
    assert not any(allows(nlp, each, MINE) for each in ACTIONS)


def test_what_a_job_file_names_is_for_its_team_alone(roles):
    """Buckets of other people, too."""
    named = {name: "runs/cpt" in str(role["Policies"]) for name, role in sorted(roles.items())}
    assert named == {"JobRole": False, "JobRolevision": True}


def test_pods_take_the_role_of_their_namespace(shared, roles):
    """Each association names it, and the role admits nobody else."""
    spaces = {"JobRole": "megatron-workshop", "JobRolevision": "vision"}
    for name, role in roles.items():
        [trust] = role["AssumeRolePolicyDocument"]["Statement"]
        tags = trust["Condition"]["StringEquals"]
        assert tags["aws:RequestTag/kubernetes-namespace"] == spaces[name]
    bound = shared.template("Cluster").properties("AWS::EKS::PodIdentityAssociation")
    assert {e["Namespace"]: spaces_of(e["RoleArn"]) for e in bound} == {
        "megatron-workshop": "JobRoleArn",
        "vision": "JobRolevisionArn",
    }


def spaces_of(imported):
    """Return what a stack imports, without the number that the CDK adds."""
    return imported["Fn::ImportValue"].rpartition("FnGetAtt")[2][:-8]


def test_roles_of_teams_get_a_group_and_no_policy_of_eks(shared):
    """A policy of EKS would reach the whole cluster, or not reach jobs."""
    entries = shared.template("Cluster").properties("AWS::EKS::AccessEntry")
    of_teams = [each for each in entries if "AccessPolicies" not in each]
    assert {e["PrincipalArn"].rpartition("/")[2]: e["KubernetesGroups"] for e in of_teams} == {
        "Nlp": ["megatron-eks:nlp"],
        "Vision": ["megatron-eks:vision"],
    }
    assert len(entries) == 3


def test_a_cluster_that_gets_teams_keeps_every_resource(assembly, shared):
    """What it had stays as it was, but for the policy of its jobs' role: nothing moves or ends."""
    for part, before in assembly.templates().items():
        after = shared.template(part).resources
        for name, body in before.resources.items():
            if name == "JobRole":
                body["Properties"]["Policies"] = after[name]["Properties"]["Policies"]
            assert after[name] == body, (part, name)


def test_ids_of_teams_with_like_names_differ(sources, tmp_path):
    """A logical id has letters and digits alone."""
    cluster = cluster_file()
    role = "arn:aws:iam::123456789012:role/"
    cluster["teams"] = [
        {"name": name, "role_arns": [f"{role}{name}"], "gpus": 8} for name in ("a-b", "ab")
    ]
    found = synthesise(cluster, sources, tmp_path).template("Storage").of_type("AWS::IAM::Role")
    assert {"JobRole", "JobRoleaXb", "JobRoleab"} <= found.keys()


@pytest.mark.parametrize("part", ["Storage", "Cluster"])
def test_templates_are_without_finding(shared, part):
    """As for the default cluster."""
    assert linted(shared.text(part)) == []
