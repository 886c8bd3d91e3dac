"""A job as a JobSet, which makes a Job of its ranks, and that Job again when one of them fails."""

from collections.abc import Mapping

from constructs import Construct

from megatron_eks.catalog.workloads import SET_RANKS, WORKLOADS
from megatron_eks.charts.training.objects import (
    failures,
    indexed,
    job_object,
    meet_at,
    rank_policy,
    template_metadata,
)
from megatron_eks.charts.training.pod import job_pod
from megatron_eks.plan.cluster.platform import PlatformPlan
from megatron_eks.plan.jobs.job import JobPlan

_KIND = WORKLOADS["JobSet"]

# What a Job says of its end by a podFailurePolicy (Kubernetes v1.36, pkg/controller/job,
# pod_failure_policy.go).
_BY_EXIT_CODE, _BY_LOST_NODE = "failed with exit code", "has condition DisruptionTarget"


def add_jobset(scope: Construct, job: JobPlan, platform: PlatformPlan) -> None:
    """Add the object; its controller makes the Service by which ranks find each other."""
    rank_policy(scope, job, platform, _KIND)
    job_object(scope, job, platform, _KIND, set_spec(job, platform))


def set_spec(job: JobPlan, platform: PlatformPlan, **labels: str) -> Mapping[str, object]:
    """Return what a JobSet is to be; `labels` are for its pods."""
    pod = job_pod(job, platform, meet_at(job, f"{job.name}-{SET_RANKS}-0-0.{job.name}"))
    ranks = {
        **indexed(job),
        # A container that restarted in its pod would meet ranks that go on without it: the first
        # pod that fails ends the Job, and so the others.
        "backoffLimit": 0,
        "podFailurePolicy": failures(lost_node="FailJob"),
        **({"activeDeadlineSeconds": job.deadline_seconds} if job.deadline_seconds else {}),
        "template": {
            "metadata": template_metadata(job, **labels),
            "spec": {**pod, "restartPolicy": "Never"},
        },
    }
    return {
        # Ranks look for index 0 while it starts.
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "replicatedJobs": [{"name": SET_RANKS, "replicas": 1, "template": {"spec": ranks}}],
        "successPolicy": {"operator": "All"},
        "failurePolicy": {
            "maxRestarts": job.restarts,
            # Old ranks hold the GPUs, and their sockets, until they are gone.
            "restartStrategy": "BlockingRecreate",
            "rules": _rules(job),
        },
        "ttlSecondsAfterFinished": job.ttl_seconds,
    }


def _rules(job: JobPlan) -> list[Mapping[str, object]]:
    """Say which failures are final, and which are nobody's fault; any other is one restart."""
    rules = [_rule("final", "FailJobSet", "PodFailurePolicy", _BY_EXIT_CODE)]
    if job.deadline_seconds:
        rules.append(_rule("deadline", "FailJobSet", "DeadlineExceeded"))
    if job.restarts:
        again = "RestartJobSetAndIgnoreMaxRestarts"
        rules.append(_rule("lostNode", again, "PodFailurePolicy", _BY_LOST_NODE))
    return rules


def _rule(name: str, action: str, reason: str, *patterns: str) -> Mapping[str, object]:
    messages = {"onJobFailureMessagePatterns": [*patterns]} if patterns else {}
    return {"name": name, "action": action, "onJobFailureReasons": [reason], **messages}
