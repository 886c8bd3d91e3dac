"""Guards of quotas: what the jobs of a namespace may take, and from whom."""

from collections.abc import Iterator

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.guards.manifests import Manifests, Object, Pod, manifest_guard
from megatron_eks.guards.values import Value

_GPUS, _EFA = "requests.nvidia.com/gpu", "requests.vpc.amazonaws.com/efa"
_NEEDED = "requiredDuringSchedulingIgnoredDuringExecution"


@manifest_guard
def quotas(manifests: Manifests) -> Iterator[Finding]:
    """Count devices of classes that exist, those of training and all others ("Resource Quotas")."""
    for quota in manifests.of("ResourceQuota"):
        hard, scope = quota["spec"]["hard"], _scope(quota)
        for each in scope["values"]:
            if not each.text.startswith("system-") and manifests.lacks("PriorityClass", each.text):
                found = f"no priority class {each.text!r}: the quota counts nothing for it"
                known = " or ".join(sorted(e.name for e in manifests.of("PriorityClass")))
                yield each.finding(Code.MISSING_OBJECT, found, f"name {known}")
        others = [e for e in manifests.of("ResourceQuota") if e.namespace == quota.namespace]
        others = [e for e in others if e is not quota and e["spec"]["hard"][_GPUS]]
        wanted = {"In": "NotIn", "NotIn": "In"}.get(scope["operator"].text, "In or NotIn")
        pair = [e for e in map(_scope, others) if e["values"].raw == scope["values"].raw]
        right = any(e["operator"].text == wanted for e in pair) or not (scope or others)
        if hard[_GPUS] and not right:
            found = "no second quota for all other classes: their pods take GPUs without a limit"
            remedy = f"add one with operator {wanted} and the same values"
            yield scope.finding(Code.QUOTA_NAME, found, remedy)


@manifest_guard
def within_quota(manifests: Manifests) -> Iterator[Finding]:
    """Have room for whole nodes and each job: pods above a quota are never made (Kubernetes)."""
    plugins = [e for e in manifests.of("DaemonSet") if "efa" in e.name]
    types = {v.text for e in plugins for v in type_values(e)} & INSTANCES.keys()
    for quota in manifests.of("ResourceQuota"):
        hard = quota["spec"]["hard"]
        gpus, efa = hard[_GPUS].quantity or 0, hard[_EFA].quantity or 0
        for each in map(INSTANCES.__getitem__, types if len(types) == 1 else ()):
            if gpus % each.gpus or gpus * each.efa_interfaces != efa * each.gpus:
                found = f"{gpus} GPUs and {efa} EFA devices are no whole nodes of {each.name}: the "
                found += "last one never gets a job"
                remedy = f"write {each.gpus} and {each.efa_interfaces} for each node"
                yield hard.finding(Code.ABOVE_QUOTA, found, remedy)
        for job in manifests.of("PyTorchJob", "Job"):
            pod = job.main_pod
            if pod is None or job.namespace != quota.namespace or not _counts(quota, pod):
                continue
            roles = [e["replicas"] for _, e in job["spec"]["pytorchReplicaSpecs"].items()]
            pods = int(sum(e.number or 0 for e in roles or [job["spec"]["parallelism"]])) or 1
            for name, limit in hard.items():
                device = name.removeprefix("requests.")
                asked = pod.main["resources"]["requests"][device].quantity or 0
                amount = pods * (1 if name == "pods" else asked)
                if limit.quantity is not None and amount > limit.quantity:
                    found = f"the job asks for {amount} of {device}, and the quota {quota.name} "
                    found += f"ends at {limit.quantity}: its last pods are not made"
                    remedy = f"use fewer nodes, or set {name} to {amount}"
                    yield job["spec"].finding(Code.ABOVE_QUOTA, found, remedy)


def type_values(daemon: Object) -> Iterator[Value]:
    """Return the instance types that a DaemonSet's affinity lists."""
    for pod in daemon.pods:
        for term in pod.spec["affinity"]["nodeAffinity"][_NEEDED]["nodeSelectorTerms"]:
            for each in term["matchExpressions"]:
                yield from each["values"] if "instance-type" in each["key"].text else ()


def _scope(quota: Object) -> Value:
    return quota["spec"]["scopeSelector"]["matchExpressions"][0]


def _counts(quota: Object, pod: Pod) -> bool:
    scope, own = _scope(quota), pod.spec["priorityClassName"].text
    return not scope or (own in scope["values"].texts) == (scope["operator"].text == "In")
