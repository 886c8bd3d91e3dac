"""Rules over Karpenter's objects: what its API refuses, and pools that never start a node."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from megatron_eks.catalog.instances import INSTANCES, InstanceType
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.quantity import quantity
from megatron_eks.rules.hardware import TYPE_LABELS
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet, in_one_folder
from megatron_eks.rules.objects.pod_fields import nearly_a_device
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, shown, text
from megatron_eks.rules.workloads import GPU, Manifest

_POOL, _CLASS = ("karpenter.sh", "NodePool"), ("karpenter.k8s.aws", "EC2NodeClass")
_POLICIES = {
    "karpenter.sh/v1": ("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"),
    "karpenter.sh/v1beta1": ("WhenEmpty", "WhenUnderutilized"),
}
_DURATION = re.compile(r"(([0-9]+(s|m|h))+|Never)")
_NODES = re.compile(r"(100|[0-9]{1,2})%|[0-9]+")
_COMPARING = ("Gt", "Lt", "Gte", "Lte")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", *_COMPARING)
_ALIAS = re.compile(r"(al2|al2023|bottlerocket|windows20(19|22|25))@.+")
_FAMILIES = ("AL2", "AL2023", "Bottlerocket", "Custom", "Windows2019", "Windows2022", "Windows2025")
_WEIGHTS = range(1, 101)
_MIB = 2**20
_SHARE, _CLOSE = 0.9, 0.8
# What a node has without a plugin, and the count of nodes of a static pool.
_LIMITED = ("cpu", "memory", "nodes", "ephemeral-storage", "pods", GPU)
# Of v1beta1, and where each stands in v1 (Karpenter, "v1 Migration").
_MOVED_OF_POOLS = {
    ("disruption", "expireAfter"): "spec.template.spec.expireAfter",
    ("template", "spec", "kubelet"): "spec.kubelet of the EC2NodeClass",
    ("template", "spec", "nodeClassRef", "apiVersion"): "its group: karpenter.k8s.aws",
}


def node_pools(manifest: Manifest) -> Iterator[Finding]:
    """Require of a NodePool what Karpenter's API takes.

    Karpenter, "NodePools" and "v1 Migration"; kubernetes-sigs/karpenter, pkg/apis/v1/nodepool.go:
    the API server refuses it otherwise, and no node is started.
    """
    if (manifest.group, manifest.kind) != _POOL:
        return
    version, spec = text(manifest.body.get("apiVersion")) or "", manifest.spec
    disruption = mapping(spec.get("disruption")) or {}
    policy = text(disruption.get("consolidationPolicy"))
    known = _POLICIES.get(version, ())
    if known and policy is not None and policy not in known and not is_placeholder(policy):
        found = f"{version} has no {shown(policy)}"
        place = ("spec", "disruption", "consolidationPolicy")
        yield _refused(manifest, place, found, f"write {' or '.join(known)}")
    if version == "karpenter.sh/v1":
        yield from _of_version_one(manifest, disruption)
    for index, value in enumerate(items(disruption.get("budgets")) or []):
        yield from _budget(manifest, ("spec", "disruption", "budgets", index), mapping(value) or {})
    weight = number(spec.get("weight"))
    if weight is not None and weight not in _WEIGHTS:
        yield _refused(manifest, ("spec", "weight"), f"weight {weight}", "write 1 to 100")
    for index, body in enumerate(_requirements(manifest)):
        path: Path = ("spec", "template", "spec", "requirements", index)
        yield from _requirement(manifest, path, body)


def _refused(manifest: Manifest, path: Path, found: str, remedy: str) -> Finding:
    return manifest.find(Code.KARPENTER, path, f"{found}: Karpenter's API refuses it", remedy)


def _of_version_one(manifest: Manifest, disruption: "Mapping[str, Json]") -> Iterator[Finding]:
    for keys, place in _MOVED_OF_POOLS.items():
        inner: Json = dict(manifest.spec)
        for key in keys[:-1]:
            inner = (mapping(inner) or {}).get(key)
        if keys[-1] in (mapping(inner) or {}):
            found = f"{keys[-1]} of v1beta1"
            yield _refused(manifest, ("spec", *keys), found, f"write {place}")
    template = mapping(manifest.spec.get("template"))
    inner_spec = mapping((template or {}).get("spec"))
    if not template or inner_spec is None:
        return
    reference = mapping(inner_spec.get("nodeClassRef"))
    lacking = [key for key in ("group", "kind", "name") if is_absent((reference or {}).get(key))]
    if reference is not None and lacking:
        path: Path = ("spec", "template", "spec", "nodeClassRef")
        found, remedy = f"no {' and no '.join(lacking)}", "name group, kind and name of the class"
        yield _refused(manifest, path, found, remedy)
    if disruption and is_absent(disruption.get("consolidateAfter")):
        path = ("spec", "disruption", "consolidateAfter")
        yield _refused(manifest, path, "no consolidateAfter", "write it, such as 30m or Never")
    for above, body, key in (
        (("spec", "disruption"), disruption, "consolidateAfter"),
        (("spec", "template", "spec"), inner_spec, "expireAfter"),
        (("spec", "template", "spec"), inner_spec, "terminationGracePeriod"),
    ):
        said = body.get(key)
        if is_absent(said) or (isinstance(said, str) and is_placeholder(said)):
            continue
        if not isinstance(said, str) or not _DURATION.fullmatch(said):
            found = f"{shown(said)} is no time"
            yield _refused(manifest, (*above, key), found, "write it like 720h, or Never")


def _budget(manifest: Manifest, path: Path, budget: "dict[str, Json]") -> Iterator[Finding]:
    nodes = budget.get("nodes")
    if not is_absent(nodes) and not (isinstance(nodes, str) and _fits(_NODES, nodes)):
        remedy = f'write it in quotes: "{nodes}"' if isinstance(nodes, int) else 'write "10%"'
        yield _refused(manifest, (*path, "nodes"), f"{shown(nodes)} as a number of nodes", remedy)
    if is_absent(budget.get("schedule")) != is_absent(budget.get("duration")):
        found = "schedule and duration belong together"
        yield _refused(manifest, path, found, "write both, or neither")


def _fits(form: "re.Pattern[str]", value: str) -> bool:
    return form.fullmatch(value) is not None or is_placeholder(value)


def _requirements(manifest: Manifest) -> "list[dict[str, Json]]":
    template = mapping(manifest.spec.get("template")) or {}
    spec = mapping(template.get("spec")) or {}
    return [mapping(each) or {} for each in items(spec.get("requirements")) or []]


def _requirement(manifest: Manifest, path: Path, body: "dict[str, Json]") -> Iterator[Finding]:
    operator, values = text(body.get("operator")), items(body.get("values"))
    if operator is None or values is None or is_placeholder(operator):
        return
    if operator not in _OPERATORS:
        found, remedy = f"no operator {shown(operator)}", f"use {', '.join(_OPERATORS)}"
        yield _refused(manifest, (*path, "operator"), found, remedy)
    elif operator == "In" and not values:
        yield _refused(manifest, (*path, "values"), "In without values", "list what it may be")
    elif operator in _COMPARING and (len(values) != 1 or (number(values[0]) or -1) < 0):
        zero = len(values) == 1 and number(values[0]) == 0
        if not zero and not any(is_placeholder(str(each)) for each in values):
            found = f"{operator} takes one whole number"
            yield _refused(manifest, (*path, "values"), found, 'write values: ["7"]')
    bare = [each for each in values if isinstance(each, int | float)]
    if bare:
        found = f"{shown(bare[0])} is no text, and values are texts"
        yield _refused(manifest, (*path, "values"), found, f'write it in quotes: "{bare[0]}"')
    least = number(body.get("minValues"))
    if operator == "In" and least is not None and least > len(values):
        found = f"minValues {least} of {len(values)} values"
        yield _refused(manifest, (*path, "minValues"), found, "list more, or ask for fewer")


def room(manifest: Manifest) -> Iterator[Finding]:
    """Find a NodePool whose limits are below one node of the types that it may start.

    Karpenter, "NodePools", spec.limits: what no node has is never reached; a node that would
    exceed them is not started, and its pods stay Pending. A limit of 0 stops a pool on purpose.
    """
    if (manifest.group, manifest.kind) != _POOL:
        return
    types = _types(manifest)
    for name, amount in (mapping(manifest.spec.get("limits")) or {}).items():
        most = quantity(amount)
        close = [GPU] if name.lower().rstrip("s") == "gpu" else nearly_a_device(name)
        if (
            not isinstance(amount, dict)
            and name not in _LIMITED
            and not name.startswith("hugepages-")
            and ("/" not in name or (close and name not in close))
        ):
            found = f"no node has a resource {shown(name)}: it limits nothing"
            remedy = f"write {close[0] if close else ', '.join(_LIMITED)}"
            path: Path = ("spec", "limits", name)
            yield manifest.find(Code.KARPENTER, path, found, remedy, Level.WARNING)
        needs = [need for each in types if (need := _of_node(each, name)) is not None]
        # Of the memory that EC2 names, Karpenter takes 7.5 % off.
        if most and needs and most < min(needs) * _SHARE:
            least = f"{min(needs) // 2**30}Gi" if name == "memory" else str(min(needs))
            found = f"{shown(amount)} of {name}, and one {types[0].name} has {least}: "
            found += "no node is ever started"
            path, remedy = ("spec", "limits", name), f"allow at least {least}, for each node"
            yield manifest.find(Code.KARPENTER, path, found, remedy)


def _types(manifest: Manifest) -> list[InstanceType]:
    """Return the only types that a pool may start; none where one is unknown."""
    for body in _requirements(manifest):
        if body.get("key") in TYPE_LABELS and body.get("operator") == "In":
            names = [text(each) or "" for each in items(body.get("values")) or []]
            known = [INSTANCES[name] for name in names if name in INSTANCES]
            return known if len(known) == len(names) else []
    return []


def _of_node(instance: InstanceType, resource: str) -> int | None:
    if resource == "memory":
        return instance.memory_mib * _MIB
    return {GPU: instance.gpus, "cpu": instance.vcpus}.get(resource)


def node_classes(manifest: Manifest) -> Iterator[Finding]:
    """Require of an EC2NodeClass what Karpenter's API takes.

    Karpenter, "NodeClasses"; aws/karpenter-provider-aws, pkg/apis/v1/ec2nodeclass.go.
    """
    version = text(manifest.body.get("apiVersion")) or ""
    if (manifest.group, manifest.kind) != _CLASS or not version.endswith("/v1"):
        return
    spec = manifest.spec
    for key in ("amiSelectorTerms", "securityGroupSelectorTerms", "subnetSelectorTerms"):
        # The one of v1alpha5 is told by its new name.
        if items(spec.get(key)) == [] and key.removesuffix("Terms") not in spec:
            hint = "[{alias: al2023@vYYYYMMDD}]" if key == "amiSelectorTerms" else "id or tags"
            yield _refused(manifest, ("spec", key), f"no {key}", f"write it, with {hint}")
    yield from _images(manifest)
    given = [key for key in ("instanceProfile", "role") if not is_absent(spec.get(key))]
    if len(given) != 1:
        found = "role and instanceProfile" if given else "no role and no instanceProfile"
        yield _refused(manifest, ("spec", "role"), found, "write one of them")
    for key in ("instanceProfile", "role"):
        name = text(spec.get(key)) or ""
        if name.startswith("arn:") and not is_placeholder(name):
            # IAM: "The specified value for roleName is invalid".
            found = f"{shown(name)} is an ARN, and IAM wants the name: no node is started"
            remedy = f"write {key}: {name.rpartition('/')[2]}"
            yield manifest.find(Code.KARPENTER, ("spec", key), found, remedy)
    yield from _reservations(manifest)
    policy = text(spec.get("instanceStorePolicy"))
    if policy is not None and policy != "RAID0" and not is_placeholder(policy):
        path = ("spec", "instanceStorePolicy")
        yield _refused(manifest, path, f"no policy {shown(policy)}", "write RAID0, or leave it out")


def _reservations(manifest: Manifest) -> Iterator[Finding]:
    terms = items(manifest.spec.get("capacityReservationSelectorTerms")) or []
    for index, value in enumerate(terms):
        name = text((mapping(value) or {}).get("id"))
        if name is not None and not name.startswith("cr-") and not is_placeholder(name):
            path: Path = ("spec", "capacityReservationSelectorTerms", index, "id")
            remedy = "write cr-..., also of a Capacity Block: cb-... is its offering"
            yield _refused(manifest, path, f"{shown(name)} is no reservation", remedy)


def _images(manifest: Manifest) -> Iterator[Finding]:
    spec, path = manifest.spec, ("spec", "amiSelectorTerms")
    terms = [mapping(each) or {} for each in items(spec.get("amiSelectorTerms")) or []]
    named = [alias for each in terms if (alias := text(each.get("alias")))]
    family = text(spec.get("amiFamily"))
    for alias in named:
        if not _fits(_ALIAS, alias):
            remedy = "write FAMILY@VERSION, such as al2023@vYYYYMMDD"
            yield _refused(manifest, path, f"{shown(alias)} is no alias", remedy)
    if named and len(terms) > 1:
        found = "an alias beside other terms"
        yield _refused(manifest, path, found, "write the alias alone, or select without one")
    if terms and not named and family is None and "amiFamily" not in spec:
        found = "no amiFamily, which only an alias tells"
        yield _refused(manifest, ("spec", "amiFamily"), found, f"write {', '.join(_FAMILIES)}")
    if family is not None and family not in _FAMILIES and not is_placeholder(family):
        found = f"no family {shown(family)}"
        yield _refused(manifest, ("spec", "amiFamily"), found, f"write {', '.join(_FAMILIES)}")


def classes(together: ManifestSet) -> Iterator[Found]:
    """Warn of a NodePool whose class is not among the classes that were given with it.

    Karpenter, "NodePools", spec.template.spec.nodeClassRef: a pool is not ready without its class.
    """
    for pool in together.of("NodePool"):
        template = mapping(pool.spec.get("template")) or {}
        reference = mapping((mapping(template.get("spec")) or {}).get("nodeClassRef")) or {}
        name, kind = text(reference.get("name")), text(reference.get("kind"))
        near = [each for each in together.of(kind or "") if in_one_folder(pool, each)]
        there = sorted(each.name for each in near if each.name)
        # Another example of the folder may bring a class of its own; a file is one example.
        meant = any(each.file == pool.file for each in near) or (
            name is not None and bool(get_close_matches(name, there, 1, _CLOSE))
        )
        # EKS Auto Mode brings a NodeClass of this name; Karpenter brings no EC2NodeClass.
        built_in = name == "default" and kind != _CLASS[1]
        odd = [each for each in (name, *there) if each is not None and is_placeholder(each)]
        if name is not None and meant and name not in there and not built_in and not odd:
            path = ("spec", "template", "spec", "nodeClassRef", "name")
            found = f"no {kind} {shown(name)} among these objects: the pool starts no node"
            remedy = f"there: {', '.join(there)}"
            yield pool, pool.find(Code.KARPENTER, path, found, remedy, Level.WARNING)
