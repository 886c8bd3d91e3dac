"""What pods of jobs may do in AWS: exactly what is written here, and in no other stack."""

from datetime import date

import pytest

from megatron_eks.config.errors import ConfigError
from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import parse_job
from megatron_eks.project import load_project
from tests.stacks.synthesis import ROOT, app_of, cluster_file, plan_of, synthesise
from tests.stacks.test_nag import findings as nag_findings
from tests.variations import BOUNDARY, VARIATIONS

TODAY = date(2026, 11, 28)
TRAINING = (ROOT / "jobs" / "megatron-cpt-techpulse.yaml").read_text()
FETCH = "schema_version: 1\nkind: fetch\nname: f\ns3_uri: {}\ndirectory: /shared/data/f\n"
PREPARE = """
schema_version: 1
kind: data_prep
name: p
input: [/shared/a.jsonl, s3://corpora/one.jsonl, "s3://corpora/en/part-*.jsonl", s3://corpora/de/]
output_prefix: /shared/data/p
tokenizer: /shared/tokenizer/t
"""


def job(text):
    """Parse a job file."""
    parsed, found = parse_job(read_mapping(text, "job.yaml"))
    assert parsed is not None, found
    return parsed


def saving(uri):
    """Return the default job, which also copies its checkpoints."""
    return job(TRAINING.replace("  interval: 100", f"  interval: 100\n  s3_uri: {uri}"))


def arn(rest):
    """Return the name of something in S3 in whatever partition the stack is."""
    return {"Fn::Join": ["", ["arn:", {"Ref": "AWS::Partition"}, f":s3:::{rest}"]]}


def allow(actions, resources, prefixes=None):
    """Write a statement as it stands in a template."""
    found = {"Effect": "Allow", "Action": actions, "Resource": resources}
    return {**found, "Condition": {"StringLike": {"s3:prefix": prefixes}}} if prefixes else found


READ, LIST = ["s3:GetObject"], ["s3:ListBucket"]
KEEP = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"]
BUCKET = {"Fn::GetAtt": ["Bucket", "Arn"]}
OWN = [
    allow(READ, [{"Fn::Join": ["", [BUCKET, "/data/*"]]}]),
    allow(LIST, [BUCKET], ["data/*"]),
    allow(["kms:Decrypt", "kms:GenerateDataKey"], [{"Fn::GetAtt": ["Key", "Arn"]}]),
]
JOBS = (
    job(FETCH.format("s3://models/llama/base")),
    job(PREPARE),
    saving("s3://models/runs/cpt/"),
)
CORPORA = ["de/*", "en/part-*", "one.jsonl", "one.jsonl/*"]
NAMED = [
    allow(READ, [arn(f"corpora/{each}") for each in CORPORA]),
    allow(LIST, [arn("corpora")], CORPORA),
    allow(KEEP, [arn("models/runs/cpt/*")]),
    allow(LIST, [arn("models")], ["runs/cpt/*"]),
    allow(READ, [arn("models/llama/base"), arn("models/llama/base/*")]),
    allow(LIST, [arn("models")], ["llama/base", "llama/base/*"]),
]


@pytest.fixture(scope="module")
def with_jobs(sources, tmp_path_factory):
    """Return the assembly of the default cluster with jobs that name buckets."""
    return synthesise(cluster_file(), sources, tmp_path_factory.mktemp("jobs"), JOBS)


def permissions(template):
    """Return the statements of the jobs' role."""
    [policy] = template.resources["JobRole"]["Properties"]["Policies"]
    return policy["PolicyDocument"]["Statement"]


def test_jobs_reach_what_their_files_name(with_jobs):
    """Inputs to read, checkpoints to keep in order."""
    assert permissions(with_jobs.template("Storage")) == [*OWN, *NAMED]


@pytest.mark.parametrize(
    "uri",
    ["s3://models/", "s3://models//", "s3://models/*", "s3://models/a?", "s3://models/${aws:x}"],
)
def test_no_text_of_a_prefix_opens_more_than_the_prefix(uri, tmp_path):
    """A policy would read `*`, `?` and `$` as something else, and no key as every key."""
    text = TRAINING.replace("  interval: 100", f'  interval: 100\n  s3_uri: "{uri}"')
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "job.yaml").write_text(text)
    (tmp_path / "cluster.yaml").write_text((ROOT / "cluster.yaml").read_text())
    with pytest.raises(ConfigError, match=r"MEKS-0370|MEKS-0107"):
        load_project(tmp_path / "cluster.yaml", TODAY)


def test_a_job_with_another_bucket_changes_the_policy_alone(assembly, with_jobs):
    """Above all no stack that has nodes in it."""
    before, after = assembly.templates(), with_jobs.templates()
    after["Storage"].body["Resources"]["JobRole"]["Properties"]["Policies"] = before[
        "Storage"
    ].body["Resources"]["JobRole"]["Properties"]["Policies"]
    assert {part: each.body for part, each in after.items()} == {
        part: each.body for part, each in before.items()
    }


def test_an_existing_cluster_gets_the_association_from_the_storage_stack(changed):
    """No other stack of this project knows it."""
    template = changed(VARIATIONS["existing_cluster"]).template("Storage")
    _, association = template.only("AWS::EKS::PodIdentityAssociation")
    assert association["ClusterName"] == "theirs"
    assert association["RoleArn"] == {"Fn::GetAtt": ["JobRole", "Arn"]}
    [trust] = template.resources["JobRole"]["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Condition"]["StringEquals"]["aws:RequestTag/eks-cluster-name"] == "theirs"


def test_a_key_and_a_boundary_of_the_company_hold_for_the_role(changed):
    """The key that encrypts the bucket, whoever made it."""
    template = changed(VARIATIONS["company_rules"]).template("Storage")
    assert permissions(template)[2]["Resource"] == [cluster_key(template)]
    assert template.resources["JobRole"]["Properties"]["PermissionsBoundary"] == BOUNDARY


def cluster_key(template):
    """Return the key of the data bucket."""
    encryption = template.resources["Bucket"]["Properties"]["BucketEncryption"]
    [rule] = encryption["ServerSideEncryptionConfiguration"]
    return rule["ServerSideEncryptionByDefault"]["KMSMasterKeyID"]


def test_a_tracker_is_logged_to_and_nothing_else(sources, tmp_path):
    """Its runs, by its ARN; no job deletes there, whoever's runs those are."""
    server = "arn:aws:sagemaker:us-east-2:123456789012:mlflow-tracking-server/mine"
    tracking = f"runtime:\n  tracking: {{mlflow: {{arn: '{server}', experiment: e}}}}"
    made = synthesise(
        cluster_file(), sources, tmp_path, [job(TRAINING.replace("runtime:", tracking))]
    )
    (found,) = (x for x in permissions(made.template("Storage")) if "mlflow" in str(x["Action"]))
    assert found["Resource"] == [server]
    assert {"sagemaker-mlflow:LogBatch", "sagemaker:CallMlflowAppApi"} <= {*found["Action"]}
    assert not [each for each in found["Action"] if "Delete" in each or "*" in each]


def test_nag_accepts_what_is_named(sources, tmp_path):
    """Every wildcard stands behind a bucket and a prefix, and is acknowledged by its name."""
    app = app_of(plan_of(cluster_file(), JOBS), sources, tmp_path, validate=True)
    assert nag_findings(app, tmp_path) == set()


def test_a_bucket_that_is_written_to_alone_is_read_only_below_that(sources, tmp_path):
    """A run that goes on reads its own checkpoints, and nothing beside them."""
    saved = synthesise(cluster_file(), sources, tmp_path, [saving("s3://models/runs/cpt/")])
    others = [each for each in permissions(saved.template("Storage")) if "models" in str(each)]
    assert others == [each for each in NAMED if "runs/cpt" in str(each)]
