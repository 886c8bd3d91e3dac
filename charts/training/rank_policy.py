"""Who may talk to the ranks of a job: its other ranks, and nobody else."""

import cdk8s
from constructs import Construct

from charts.training.objects import metadata
from megatron_eks.plan.job import JobPlan
from megatron_eks.plan.platform import PlatformPlan


def rank_policy(scope: Construct, job: JobPlan, platform: PlatformPlan, label: str) -> None:
    """Allow every port between pods with the job's name in a label; torch and NCCL pick theirs.

    The platform's default deny keeps everything else away. It stands before the job, so that it is
    there before the first pod, and its prefix keeps it apart from the platform's own policies.
    """
    resource = cdk8s.ApiObject(
        scope,
        "ranks",
        api_version="networking.k8s.io/v1",
        kind="NetworkPolicy",
        metadata=metadata(f"ranks-of-{job.name}", job, platform),
    )
    ranks = {"matchLabels": {label: job.name}}
    peers = [{"podSelector": ranks}]
    spec = {
        "podSelector": ranks,
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": peers}],
        "egress": [{"to": peers}],
    }
    resource.add_json_patch(cdk8s.JsonPatch.add("/spec", spec))
