"""Rules over what a role gives: groups, resources and verbs that Kubernetes knows."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet, in_one_folder
from megatron_eks.rules.values import is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

_CLOSE = 0.8
# Kubernetes 1.35, API reference, and kubeflow/trainer v1.9.4: the groups that training uses.
_RESOURCES: dict[str, frozenset[str]] = {
    group: frozenset(names.split())
    for group, names in {
        "": "bindings componentstatuses configmaps endpoints events limitranges namespaces nodes"
        " persistentvolumeclaims persistentvolumes pods podtemplates replicationcontrollers"
        " resourcequotas secrets serviceaccounts services",
        "admissionregistration.k8s.io": "mutatingwebhookconfigurations"
        " validatingadmissionpolicies validatingadmissionpolicybindings"
        " validatingwebhookconfigurations mutatingadmissionpolicies"
        " mutatingadmissionpolicybindings",
        "apiextensions.k8s.io": "customresourcedefinitions",
        "apps": "controllerrevisions daemonsets deployments replicasets statefulsets",
        "autoscaling": "horizontalpodautoscalers",
        "batch": "cronjobs jobs",
        "coordination.k8s.io": "leases leasecandidates",
        "kubeflow.org": "jaxjobs mpijobs mxjobs paddlejobs pytorchjobs tfjobs xgboostjobs"
        " notebooks profiles poddefaults experiments suggestions trials scheduledworkflows",
        "networking.k8s.io": "ingressclasses ingresses ipaddresses networkpolicies servicecidrs",
        "policy": "poddisruptionbudgets podsecuritypolicies",
        "rbac.authorization.k8s.io": "clusterrolebindings clusterroles rolebindings roles",
        "scheduling.k8s.io": "priorityclasses podgroups workloads",
        "storage.k8s.io": "csidrivers csinodes csistoragecapacities storageclasses"
        " volumeattachments volumeattributesclasses",
    }.items()
}
GROUPS = frozenset(_RESOURCES)
"""The API groups whose resources are known."""
_VERBS = frozenset(
    {
        *("approve", "attest", "bind", "create", "delete", "deletecollection", "escalate", "get"),
        *("impersonate", "list", "patch", "proxy", "sign", "update", "use", "watch", "*"),
    }
)
# What people call these.
_MEANT = {
    **dict.fromkeys(("add", "run", "submit", "write"), "create"),
    **dict.fromkeys(("destroy", "kill", "remove"), "delete"),
    **dict.fromkeys(("describe", "read", "view"), "get"),
    **dict.fromkeys(("edit", "modify", "replace"), "update"),
}
# What kubectl calls a part of a pod, and the right that it is.
_OF_PARTS = {
    "attach": ("pods/attach", "create"),
    "evict": ("pods/eviction", "create"),
    "exec": ("pods/exec", "create"),
    "log": ("pods/log", "get"),
    "logs": ("pods/log", "get"),
    "port-forward": ("pods/portforward", "create"),
    "portforward": ("pods/portforward", "create"),
}
# Kubernetes 1.35, API reference: of no namespace. A namespace itself is read with its own name as
# its namespace, and rights to bind, escalate or use are asked of the namespace of an object.
_OF_NO_NAMESPACE = {
    "": "componentstatuses nodes persistentvolumes",
    "admissionregistration.k8s.io": "mutatingwebhookconfigurations"
    " validatingadmissionpolicies validatingadmissionpolicybindings"
    " validatingwebhookconfigurations",
    "apiextensions.k8s.io": "customresourcedefinitions",
    "networking.k8s.io": "ingressclasses",
    "rbac.authorization.k8s.io": "clusterrolebindings clusterroles",
    "scheduling.k8s.io": "priorityclasses",
    "storage.k8s.io": "csidrivers csinodes storageclasses volumeattachments",
}
_OF_OBJECTS = frozenset(
    {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
)
# Kubernetes, "Authorization", request verbs: calls of a pod, and not objects.
_PARTS_OF_PODS = ("attach", "eviction", "exec", "log", "portforward", "proxy", "status")
_CALLED = frozenset({"pods/attach", "pods/exec", "pods/portforward"})
_NAMELESS = frozenset({"create", "deletecollection"})


def names(manifest: Manifest) -> Iterator[Finding]:
    """Require groups, resources and verbs of a role that Kubernetes knows.

    Kubernetes, "Using RBAC Authorization": the API server takes any text, and what it does not
    know gives no right.
    """
    if manifest.kind not in {"ClusterRole", "Role"}:
        return
    yield from _calls(manifest)
    yield from _by_name(manifest)
    for index, value in enumerate(items(manifest.body.get("rules")) or []):
        rule, path = mapping(value) or {}, ("rules", index)
        groups = texts(rule.get("apiGroups"))
        for place, group in enumerate(groups):
            if re.search(r"/v[0-9]", group):
                found = f"{shown(group)} is a group with a version: it gives no right"
                remedy = f"write {group.partition('/')[0]}"
                yield manifest.find(Code.RIGHTS, (*path, "apiGroups", place), found, remedy)
            elif group in {"v1", "core", "core/v1"}:
                found = f"{shown(group)} is no group: it gives no right"
                remedy = 'write "" for pods, services, secrets and others of the core'
                yield manifest.find(Code.RIGHTS, (*path, "apiGroups", place), found, remedy)
        if groups and all(group in _RESOURCES for group in groups):
            yield from _resources(manifest, (*path, "resources"), groups, rule.get("resources"))
        own = bool(groups) and set(groups) <= _RESOURCES.keys()
        yield from _verbs(manifest, (*path, "verbs"), texts(rule.get("verbs")), own=own)
        yield from _parts(manifest, index, rule)


def _parts(manifest: Manifest, index: int, rule: "dict[str, Json]") -> Iterator[Finding]:
    """Find what kubectl calls a part of a pod in the place of a verb."""
    rules = [mapping(each) or {} for each in items(manifest.body.get("rules")) or []]
    of_pods = "" in texts(rule.get("apiGroups")) and "pods" in texts(rule.get("resources"))
    for place, verb in enumerate(texts(rule.get("verbs")) if of_pods else ()):
        part, right = _OF_PARTS.get(verb.lower(), ("", ""))
        if part and not gives(rules, "", part, right):
            found = f"{shown(verb)} is no verb: it gives no right"
            remedy = f"add a rule for {part} with the verb {right}"
            path: Path = ("rules", index, "verbs", place)
            yield manifest.find(Code.RIGHTS, path, found, remedy, Level.WARNING)


def of_no_namespace(together: ManifestSet) -> Iterator[Found]:
    """Warn of objects of no namespace in a role of one, where no ClusterRole beside gives them.

    Kubernetes, "Using RBAC Authorization": a Role sets permissions within its namespace.
    """
    wide = [
        (role, mapping(each) or {})
        for role in together.of("ClusterRole")
        for each in items(role.body.get("rules")) or []
    ]
    for role in together.of("Role"):
        beside = [rule for other, rule in wide if in_one_folder(role, other)]
        for index, value in enumerate(items(role.body.get("rules")) or []):
            rule = mapping(value) or {}
            verbs = texts(rule.get("verbs"))
            free = verbs and _OF_OBJECTS.issuperset(verbs)
            for place, each in enumerate(texts(rule.get("resources")) if free else ()):
                groups = [
                    group
                    for group in texts(rule.get("apiGroups"))
                    if each.partition("/")[0] in _OF_NO_NAMESPACE.get(group, "").split()
                ]
                if groups and not all(gives(beside, groups[0], each, verb) for verb in verbs):
                    found = f"{each} are of no namespace: a Role gives no right to them"
                    remedy = "write a ClusterRole for them, and a ClusterRoleBinding"
                    path: Path = ("rules", index, "resources", place)
                    yield role, role.find(Code.RIGHTS, path, found, remedy, Level.WARNING)


def _verbs(manifest: Manifest, path: Path, verbs: list[str], *, own: bool) -> Iterator[Finding]:
    """Find verbs that nearly are one, and words for one that is not there."""
    for place, verb in enumerate(verbs):
        close = get_close_matches(verb.lower(), _VERBS, 1, _CLOSE)
        meant = _MEANT.get(verb.lower()) if own else None
        if verb in _VERBS:
            continue
        found = f"{shown(verb)} is no verb"
        if meant and not {"*", "patch" if meant == "update" else meant, meant} & {*verbs}:
            remedy = f"write {meant}"
            yield manifest.find(Code.RIGHTS, (*path, place), found, remedy, Level.WARNING)
        elif close and not meant:
            yield manifest.find(Code.RIGHTS, (*path, place), found, f"did you mean {close[0]}?")


def _calls(manifest: Manifest) -> Iterator[Finding]:
    """Find calls of pods that a role lets only be read, in any of its rules."""
    rules = [mapping(each) or {} for each in items(manifest.body.get("rules")) or []]
    for index, rule in enumerate(rules):
        called = next((each for each in texts(rule.get("resources")) if each in _CALLED), None)
        if called and texts(rule.get("verbs")) and not gives(rules, "", called, "create"):
            found = f"{called} without create: Kubernetes 1.35 refuses the call"
            path = ("rules", index, "verbs")
            yield manifest.find(Code.RIGHTS, path, found, "add create", Level.WARNING)


def _by_name(manifest: Manifest) -> Iterator[Finding]:
    """Find objects that a role lets be made by their name only, which no call to make one has.

    Kubernetes, "Using RBAC Authorization", referring to resources: create and deletecollection
    cannot be restricted by a name. A part, such as pods/exec, is called with its pod's.
    """
    rules = [mapping(each) or {} for each in items(manifest.body.get("rules")) or []]
    free = [each for each in rules if not items(each.get("resourceNames"))]
    for index, rule in enumerate(rules):
        named = texts(rule.get("resourceNames"))
        groups = texts(rule.get("apiGroups"))
        whole = [each for each in texts(rule.get("resources")) if "/" not in each]
        for place, verb in enumerate(texts(rule.get("verbs")) if named else ()):
            lacking = [
                each
                for each in whole
                if not any(gives(free, group, each, verb) for group in groups)
            ]
            if verb in _NAMELESS and lacking:
                found = f"{verb} of {lacking[0]} with resourceNames gives no right: the call has "
                found += "no name"
                remedy = "give it in a rule without resourceNames, or leave it out"
                path = ("rules", index, "verbs", place)
                yield manifest.find(Code.RIGHTS, path, found, remedy, Level.WARNING)


def _resources(manifest: Manifest, path: Path, groups: list[str], value: Json) -> Iterator[Finding]:
    known = frozenset().union(*(_RESOURCES[group] for group in groups))
    for index, each in enumerate(texts(value)):
        name, _, part = each.partition("/")
        nearly = get_close_matches(part, _PARTS_OF_PODS, 1, _CLOSE) if name == "pods" else []
        if nearly and part not in _PARTS_OF_PODS:
            found = f"pods have no part {shown(part)}"
            yield manifest.find(Code.RIGHTS, (*path, index), found, f"write pods/{nearly[0]}")
        if name in known or "*" in name:
            continue
        elsewhere = [group for group, there in _RESOURCES.items() if name in there]
        close = get_close_matches(name.lower(), known, 1, _CLOSE)
        if elsewhere:
            found = f"{shown(name)} is in group {shown(elsewhere[0])}: this gives no right to it"
            remedy = f"add {shown(elsewhere[0])} to apiGroups"
        elif close:
            found, remedy = f"{shown(name)} is no resource", f"did you mean {close[0]}?"
        else:
            continue
        yield manifest.find(Code.RIGHTS, (*path, index), found, remedy)


def texts(value: Json) -> list[str]:
    """Return the texts of a list that are no placeholders."""
    return [
        name
        for each in items(value) or []
        if (name := text(each)) is not None and not is_placeholder(name)
    ]


def gives(rules: "list[dict[str, Json]]", group: str, resource: str, verb: str) -> bool:
    """Tell whether rules of roles give a verb on a resource of a group.

    Kubernetes, "Using RBAC Authorization": rules add up, and `*` is everything.
    """

    def has(rule: "dict[str, Json]", key: str, *wanted: str) -> bool:
        return not {"*", *wanted}.isdisjoint(texts(rule.get(key)))

    return any(
        has(rule, "apiGroups", group)
        and has(rule, "resources", resource, resource.replace(resource.partition("/")[0], "*", 1))
        and has(rule, "verbs", verb)
        for rule in rules
    )
