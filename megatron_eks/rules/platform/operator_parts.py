"""Rules over what operators and the VPC CNI need to go on: memory, rights, addresses, selectors."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.quantity import quantity
from megatron_eks.rules.values import (
    is_absent,
    is_placeholder,
    items,
    mapping,
    number,
    shown,
    text,
)
from megatron_eks.rules.workloads import Manifest

_OPERATOR = re.compile(r"(^|/)training-operator([:@]|$)")
# kubeflow/trainer v1, pkg/controller.v1/register_controller.go, and older releases of it.
_SCHEMES = ("jaxjob", "mpijob", "mxjob", "paddlejob", "pytorchjob", "tfjob", "xgboostjob")
_FLAGS = (
    *("controller-threads", "enable-scheme", "gang-scheduler-name", "health-probe-bind-address"),
    *("kube-api-burst", "kube-api-qps", "kubeconfig", "leader-elect", "leader-election-id"),
    *("metrics-bind-address", "mpi-kubectl-delivery-image", "namespace"),
    *("pytorch-init-container-image", "pytorch-init-container-max-tries"),
    *("pytorch-init-container-template-file", "webhook-secret-name", "webhook-server-port"),
    *("webhook-service-name", "zap-devel", "zap-encoder", "zap-log-level"),
    *("zap-stacktrace-level", "zap-time-encoding"),
)
_NEARLY = 0.85
_NUMBERS = frozenset(
    {
        *("controller-threads", "kube-api-burst", "kube-api-qps", "webhook-server-port"),
        "pytorch-init-container-max-tries",
    }
)
_SCHEME = re.compile(r"--?enable-scheme(?:=(?P<value>.*))?")
_ETCD = re.compile(r"(^|/)etcd:v?3\.(?P<minor>[0-9]+)")
_LAST_OF_V2 = 5
_SERVER = "/tmp/k8s-webhook-server"  # noqa: S108 -- the operator's, in its container
_CERTIFICATES = f"{_SERVER}/serving-certs"
_V2 = re.compile(r"--?enable-v2(=true)?")
_LEAST, _ENOUGH = "100Mi", "512Mi"
_GROUPS = ("kubeflow.org", "trainer.kubeflow.org")
_FINALIZERS, _STATUS = "/finalizers", "/status"
# Others of these groups, as notebooks, have a status that their pages only read.
_JOBS = ("experiments", "jobs", "trials", "workflows")
_WRITING = frozenset({"update", "patch", "*"})
_WARM, _MINIMUM = "WARM_IP_TARGET", "MINIMUM_IP_TARGET"
# Of these groups a matchExpressions is always a selector of labels.
_WITH_SELECTORS = (
    *("", "admissionregistration.k8s.io", "apps", "batch", "jobset.x-k8s.io", "kubeflow.org"),
    *("kueue.x-k8s.io", "networking.k8s.io", "policy", "scheduling.volcano.sh"),
)


def memory(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a training operator that does not start within its memory.

    kubeflow/trainer, issue 1661 and pull request 1668: OOMKilled at 30Mi; kubeflow/manifests, issue
    2101: 100Mi ended the restarts. It keeps every job and pod of the cluster in memory.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            image = text(container.body.get("image")) or ""
            limit = container.amounts("limits").get("memory")
            most, least = quantity(limit), quantity(_LEAST)
            if not _OPERATOR.search(image) or most is None or least is None or most >= least:
                continue
            found = f"{shown(limit)}: the operator is OOMKilled as it starts, and no job is made"
            path = (*container.path, "resources", "limits", "memory")
            remedy = f"write {_ENOUGH}"
            yield Finding(Code.PLATFORM_PART, path, found, remedy, Level.WARNING)


def schemes(manifest: Manifest) -> Iterator[Finding]:
    """Require of a training operator's schemes that it knows them, one to a flag.

    kubeflow/trainer v1, register_controller.go, EnabledSchemes.Set: "scheme %s is not supported
    yet", at which the operator ends.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            words = container.words
            of_it = _OPERATOR.search(text(container.body.get("image")) or "")
            for index, (path, word) in enumerate(words if of_it else ()):
                match = _SCHEME.fullmatch(word)
                value = match["value"] if match else None
                if match and value is None and index + 1 < len(words):
                    value = words[index + 1][1]
                if value is None or value.lower() in _SCHEMES or is_placeholder(value):
                    continue
                close = get_close_matches(value.lower(), _SCHEMES, 1, 0)
                remedy = f"did you mean {close[0]}? known: {', '.join(_SCHEMES)}"
                if "," in value:
                    remedy = "write the flag once for each of them"
                found = f"no scheme {shown(value)}: the operator ends, and no job is made"
                yield Finding(Code.MANIFEST_VALUE, path, found, remedy)


def flags(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a flag that a training operator nearly has: it ends at one that it does not know.

    kubeflow/trainer v1.9.4, cmd/training-operator.v1/main.go.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            if not _OPERATOR.search(text(container.body.get("image")) or ""):
                continue
            for path, word in container.words:
                name = word.partition("=")[0].lstrip("-")
                close = get_close_matches(name, _FLAGS, 1, _NEARLY)
                value = word.partition("=")[2]
                if name in _NUMBERS and value and not value.isdigit() and "$" not in value:
                    found = f"{shown(value)} is no number: the operator ends, and no job is made"
                    yield Finding(Code.MANIFEST_VALUE, path, found, "write a whole number")
                if word.startswith("-") and name not in _FLAGS and close:
                    found = f"no flag --{name}: the operator ends, and no job is made"
                    remedy = f"did you mean --{close[0]}?"
                    yield Finding(Code.MANIFEST_VALUE, path, found, remedy)


def certificates(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a training operator whose certificate is not where it reads it.

    kubeflow/trainer v1.9, pkg/cert/cert.go, certDir; cert-controller waits until it is there. An
    older release has no webhooks, and no Secret for them.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            image = text(container.body.get("image")) or ""
            bodies = [
                mapping(each) or {} for each in items(container.body.get("volumeMounts")) or []
            ]
            places = [(text(each.get("mountPath")) or "").rstrip("/") for each in bodies]
            if not _OPERATOR.search(image) or _CERTIFICATES in places:
                continue
            for index, place in enumerate(places):
                if place == _SERVER or place.startswith(f"{_SERVER}/"):
                    found = (
                        f"{shown(place)}, where the operator reads no certificate: its webhooks "
                    )
                    found += "do not answer, and no job is taken"
                    path = (*container.path, "volumeMounts", index, "mountPath")
                    remedy = f"write {_CERTIFICATES}"
                    yield Finding(Code.PLATFORM_PART, path, found, remedy, Level.WARNING)


def stores(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a flag for etcd's second API in a release that has none.

    etcd, "Upgrade etcd from v3.5 to v3.6": --enable-v2 is gone, and etcd ends at a flag that it
    does not know; torchrun's rendezvous etcd-v2 needs that API.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            match = _ETCD.search(text(container.body.get("image")) or "")
            for path, word in container.words if match else ():
                if match and int(match["minor"]) > _LAST_OF_V2 and _V2.fullmatch(word):
                    found = f"etcd 3.{match['minor']} has no {word}: it ends as it starts"
                    remedy = "use v3.5 of etcd, or c10d, which needs none"
                    yield Finding(Code.MANIFEST_VALUE, path, found, remedy)


def status_rights(manifest: Manifest) -> Iterator[Finding]:
    """Warn of an operator's role that may end jobs of a kind, and not write their status.

    kubeflow/pytorch-operator, issue 182; Kubernetes, "CustomResourceDefinitions", status
    subresource: it is a resource of its own for rights, and a job without it never ends.
    """
    if manifest.kind not in {"ClusterRole", "Role"}:
        return
    rules = [mapping(each) or {} for each in items(manifest.body.get("rules")) or []]
    of_jobs = [each for each in rules if not {*_GROUPS}.isdisjoint(_words(each, "apiGroups"))]
    writable = {
        name
        for rule in of_jobs
        if not _WRITING.isdisjoint(_words(rule, "verbs"))
        for name in _words(rule, "resources")
    }
    if writable & {"*", "*/status"}:
        return
    for index, rule in enumerate(rules):
        for name in _words(rule, "resources") if rule in of_jobs else []:
            kind = name.removesuffix(_FINALIZERS)
            ends = kind != name and kind.endswith(_JOBS)
            if ends and kind in writable and kind + _STATUS not in writable:
                found = f"{name} without {kind}{_STATUS}: the operator cannot say that a job has "
                found += "started or ended"
                remedy = f"add {kind}{_STATUS} with get, update and patch"
                path: Path = ("rules", index, "resources")
                yield manifest.find(Code.RIGHTS, path, found, remedy, Level.WARNING)


def _words(rule: Mapping[str, Json], key: str) -> list[str]:
    return [said for each in items(rule.get(key)) or [] if (said := text(each)) is not None]


def addresses(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a VPC CNI that is told to keep no address beyond those that it begins with.

    aws/amazon-vpc-cni-k8s, README, MINIMUM_IP_TARGET, and issue 2650: with WARM_IP_TARGET 0 or none
    beside it, no more addresses are allocated.
    """
    for given, path in _settings(manifest):
        least, warm = number(given.get(_MINIMUM)), given.get(_WARM)
        if least and (is_absent(warm) or number(warm) == 0):
            beside = f"no {_WARM}" if is_absent(warm) else f"{_WARM} {shown(warm)}"
            found = f"{_MINIMUM} {least} and {beside}: the pod after the first {least} of a node "
            found += "gets no address"
            remedy = f"set {_WARM} to 1 or more, such as 2"
            yield manifest.find(Code.PLATFORM_PART, path, found, remedy, Level.WARNING)


def _settings(manifest: Manifest) -> "Iterator[tuple[dict[str, Json], Path]]":
    if (manifest.kind, manifest.name) == ("ConfigMap", "amazon-vpc-cni"):
        data = mapping(manifest.body.get("data")) or {}
        yield {key.upper().replace("-", "_"): value for key, value in data.items()}, ("data",)
    if (manifest.kind, manifest.name) != ("DaemonSet", "aws-node"):
        return
    for pod in manifest.pods:
        for container in pod.containers:
            listed = [mapping(each) or {} for each in items(container.body.get("env")) or []]
            # What comes from elsewhere is unknown.
            if any("valueFrom" in each and each.get("name") == _WARM for each in listed):
                continue
            yield (
                {str(each.get("name")): each.get("value") for each in listed},
                (*container.path[1:], "env"),
            )


def selectors(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a selector of labels with an operator that lacks its values, or has some for nothing.

    Kubernetes, "Labels and Selectors", and apimachinery, ValidateLabelSelectorRequirement: In and
    NotIn need values, Exists and DoesNotExist take none.
    """
    if manifest.group in _WITH_SELECTORS:
        yield from _requirements(manifest, dict(manifest.body), ())


def _requirements(manifest: Manifest, value: Json, path: Path) -> Iterator[Finding]:
    inner = mapping(value)
    for key, each in (inner or {}).items():
        place = (*path, key)
        if key == "matchExpressions":
            for index, one in enumerate(items(each) or []):
                yield from _requirement(manifest, mapping(one) or {}, (*place, index))
        else:
            yield from _requirements(manifest, each, place)
    for index, each in enumerate(items(value) or [] if inner is None else []):
        yield from _requirements(manifest, each, (*path, index))


def _requirement(manifest: Manifest, body: "dict[str, Json]", path: Path) -> Iterator[Finding]:
    operator, values = text(body.get("operator")), body.get("values")
    listed = items(values)
    if operator in {"In", "NotIn"} and (is_absent(values) or listed == []):
        found = f"{operator} without values: the API server refuses the object"
        meant = "Exists" if operator == "In" else "DoesNotExist"
        remedy = f"list them, or write operator: {meant}"
        yield manifest.find(Code.WRONG_VALUE, (*path, "values"), found, remedy)
    elif operator in {"Exists", "DoesNotExist"} and listed:
        found = f"{operator} with values: the API server refuses the object"
        meant = "In" if operator == "Exists" else "NotIn"
        remedy = f"remove them, or write operator: {meant}"
        yield manifest.find(Code.WRONG_VALUE, (*path, "values"), found, remedy)
