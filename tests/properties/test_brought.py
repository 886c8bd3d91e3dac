"""Whatever is brought along in whatever combination: refused with a place, or synthesised."""

import json
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from megatron_eks.config.errors import has_errors
from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import parse_cluster
from megatron_eks.guards.check import findings_for_templates
from megatron_eks.plan.cluster.cluster import check_cluster, plan_cluster
from tests.stacks.synthesis import TAGS, app_of, cluster_file
from tests.variations import BOUNDARY, CERTIFICATE, KEY, LUSTRE, NODES, SUBNETS, VPC

ENDPOINTS = ["ec2", "ecr.api", "ecr.dkr", "eks-auth"]
PROXY = {"http": "http://proxy:3128", "https": "http://proxy:3128"}

SUBNET_MAPS = [SUBNETS, {"us-east-2b": SUBNETS["us-east-2b"]}, {"us-east-2c": "subnet-01234567"}]

anywhere = {
    "vpc_cidr": st.sampled_from(["10.0.0.0/16", "10.9.0.0/24"]),
    "nat_gateways": st.sampled_from([0, 1, "per_zone"]),
    "proxy": st.just(PROXY),
    "ca_bundle": st.just(CERTIFICATE),
    "interface_endpoints": st.just(ENDPOINTS),
}
existing = {
    "vpc_id": st.just(VPC),
    "private_subnets": st.sampled_from(SUBNET_MAPS),
    "node_security_group_id": st.just(NODES),
}
networks = st.one_of(
    st.fixed_dictionaries({}, optional=anywhere),
    st.fixed_dictionaries({"vpc_id": st.just(VPC), "private_subnets": st.just(SUBNETS)}),
    st.fixed_dictionaries(existing),
    st.fixed_dictionaries({}, optional={**anywhere, **existing}),
)
file_systems = st.fixed_dictionaries(
    {},
    optional={
        "capacity_gib": st.sampled_from([1200, 9600]),
        "deployment": st.sampled_from(["persistent_2", "scratch_2"]),
        "availability_zone": st.sampled_from(["us-east-2a", "us-east-2b"]),
        "per_zone": st.booleans(),
        "efa": st.booleans(),
        "existing": st.sampled_from([LUSTRE, {**LUSTRE, "path": "/teams/nlp"}]),
        "data_repositories": st.just([{"path": "/corpus", "s3_uri": "s3://corpora"}]),
    },
)
clusters = st.fixed_dictionaries(
    {
        "network": networks,
        "storage": st.builds(
            lambda lustre, rest: {"lustre": lustre, **rest},
            file_systems,
            st.fixed_dictionaries({}, optional={"efs": st.booleans(), "kms_key_arn": st.just(KEY)}),
        ),
    },
    optional={
        "existing_cluster": st.just("theirs"),
        "permissions_boundary_arn": st.just(BOUNDARY),
        "images": st.just({"mirror": "registry.example.com/mirror"}),
    },
)


@settings(deadline=None, max_examples=60)
@given(changes=clusters, second=st.booleans(), bastion=st.booleans())
def test_accepted_is_rendered_and_without_fault(
    *, changes: dict[str, Any], second: bool, bastion: bool, sources: Path
) -> None:
    """No combination that passes the checks breaks a stack or a rule over templates."""
    cluster = {**cluster_file(), **changes}
    if second:
        pool = dict(cluster["gpu_pools"][0], name="other", availability_zone="us-east-2a")
        cluster["gpu_pools"] = [*cluster["gpu_pools"], pool]
    if bastion:
        cluster["access"] = {
            **cluster["access"],
            "public_cidrs": [],
            "private_route": "ssm_bastion",
        }
    document = read_mapping(json.dumps(cluster, indent=1), "cluster.yaml")
    config, findings = parse_cluster(document)
    assert config is not None, findings
    found = list(document.locate(check_cluster(config, date(2026, 11, 21))))
    assert all(finding.line > 1 for finding in found)
    if has_errors(found):
        event("refused")
        return
    event("accepted")
    plan = plan_cluster(config, TAGS)
    with tempfile.TemporaryDirectory() as folder:
        app_of(plan, sources, Path(folder)).synth()
        made = {path.name: path.read_text() for path in Path(folder).glob("*.template.json")}
    assert {name.removesuffix(".template.json") for name in made} == {
        plan.stack(part) for part in plan.stacks
    }
    assert not has_errors(findings_for_templates(made))
