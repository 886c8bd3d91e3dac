"""Rules over operators and their kinds: whether anybody ever works on the objects of a set."""

import re
from collections.abc import Iterator, Mapping

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.objects.pod_shape import served_instead
from megatron_eks.rules.platform.device_plugins import is_near
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, shown, text
from megatron_eks.rules.workloads import Container, Manifest

_KUBEFLOW = "kubeflow.org"
# kubeflow/trainer v1.9.4, cmd/training-operator.v1/main.go; kubeflow/mpi-operator,
# cmd/mpi-operator/app/options/options.go: the flags of both are called the same.
_OPERATORS = (
    (re.compile(r"(^|/)(training-operator|pytorch-operator|tf-operator)([:@]|$)"), None),
    (re.compile(r"(^|/)mpi-operator([:@]|$)"), "MPIJob"),
)
_NAMESPACE, _SCHEME = re.compile(r"--?namespace"), re.compile(r"--?enable-scheme")
_JOBS = frozenset({"JAXJob", "MPIJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob"})
# Their controllers write what became of an object with UpdateStatus, which is refused without it.
_WITH_STATUS = ("kubeflow.org", "kueue.x-k8s.io", "jobset.x-k8s.io", "karpenter.sh", "ray.io")
_DEFINITION = "CustomResourceDefinition"


def watched(together: ManifestSet) -> Iterator[Found]:
    """Refuse an operator that was told to overlook the jobs beside it.

    kubeflow/trainer v1.9.4, cmd/training-operator.v1/main.go: --namespace is the one that it
    watches, and --enable-scheme lists the kinds; of other jobs no pod is ever made.
    """
    jobs = [each for each in together.objects if each.group == _KUBEFLOW and each.kind in _JOBS]
    for manifest in together.of("Deployment") if jobs else ():
        for container in (each for pod in manifest.pods for each in pod.containers):
            image = text(container.body.get("image")) or ""
            kinds = [kind for form, kind in _OPERATORS if form.search(image)]
            if not kinds or container.is_init:
                continue
            near = [each for each in jobs if is_near(manifest, each)]
            mine = [each for each in near if kinds[0] in {None, each.kind}]
            yield from _overlooked(manifest, container, mine)


def _overlooked(
    manifest: Manifest, container: Container, jobs: "list[Manifest]"
) -> Iterator[Found]:
    spaces = _given(container, _NAMESPACE)
    for path, value in spaces[-1:]:
        own = manifest.namespace if re.search(r"NAMESPACE\)?$", value) else value
        beyond = [each for each in jobs if each.namespace not in {None, own}]
        if beyond and own and not is_placeholder(own):
            found = f"watches namespace {own} only, and {beyond[0].title} is in "
            found += f"{beyond[0].namespace}: no pod is ever made of it"
            remedy = "remove the flag, or name the namespace of the jobs"
            yield manifest, manifest.find(Code.OPERATOR, path[1:], found, remedy)
    schemes = _given(container, _SCHEME)
    known = {part.strip().lower() for _, value in schemes for part in value.split(",")}
    missing = [each for each in jobs if each.kind.lower() not in known]
    if known and missing and not any(is_placeholder(each) for each in known):
        kind = missing[0].kind
        found = f"does not work on {kind}, and {missing[0].title} is one"
        path, remedy = schemes[-1][0], f"add --enable-scheme={kind.lower()}"
        yield manifest, manifest.find(Code.OPERATOR, path[1:], found, remedy)


def leaders(manifest: Manifest) -> Iterator[Finding]:
    """Warn of several training operators that all work on each job.

    kubeflow/trainer v1.9.4, cmd/training-operator.v1/main.go: --leader-elect is false unless said.
    """
    count = number(manifest.spec.get("replicas"))
    for container in (each for pod in manifest.pods for each in pod.containers):
        named = _OPERATORS[0][0].search(text(container.body.get("image")) or "")
        if manifest.kind != "Deployment" or not named or count is None or count <= 1:
            continue
        if not any(re.match(r"--?leader-elect(?!ion-id)(?!=false)", w) for _, w in container.words):
            found = f"{count} operators without --leader-elect: each of them works on every job, "
            found += "and makes its pods"
            path, remedy = ("spec", "replicas"), "write 1, or add --leader-elect"
            yield manifest.find(Code.OPERATOR, path, found, remedy, Level.WARNING)


def _given(container: Container, flag: "re.Pattern[str]") -> "list[tuple[Path, str]]":
    words = container.words
    found = []
    for index, (path, word) in enumerate(words):
        name, equals, value = word.partition("=")
        if flag.fullmatch(name):
            after = words[index + 1][1] if index + 1 < len(words) else ""
            found.append((path, value if equals else after))
    return [each for each in found if each[1]]


def definitions(manifest: Manifest) -> Iterator[Finding]:
    """Require of a kind's definition what the API server and its operator need.

    Kubernetes, "Extend the Kubernetes API with CustomResourceDefinitions": the name is
    PLURAL.GROUP, one version is stored, and /status is there only if a version enables it.
    """
    if manifest.kind != _DEFINITION:
        return
    spec = manifest.spec
    group, names = text(spec.get("group")), mapping(spec.get("names")) or {}
    plural, versions = text(names.get("plural")), items(spec.get("versions"))
    if group and plural and manifest.name and manifest.name != f"{plural}.{group}":
        found = f"{shown(manifest.name)} and not {plural}.{group}: the API server refuses it"
        yield manifest.find(Code.OPERATOR, ("metadata", "name"), found, f"write {plural}.{group}")
    bodies = [mapping(each) or {} for each in versions or []]
    stored = [each for each in bodies if each.get("storage") is True]
    if (
        bodies
        and len(stored) != 1
        and all(isinstance(each.get("storage"), bool) for each in bodies)
    ):
        found = f"{len(stored)} stored versions: the API server refuses the definition"
        yield manifest.find(Code.OPERATOR, ("spec", "versions"), found, "store one version")
    if group == _KUBEFLOW and spec.get("scope") == "Cluster" and text(names.get("kind")) in _JOBS:
        found = "jobs without a namespace: the operator makes pods in that of each job"
        yield manifest.find(Code.OPERATOR, ("spec", "scope"), found, "write Namespaced")
    kind = str(names.get("kind"))
    # Others than the training operator have kinds in its group, PodDefault among them.
    controlled = group in _WITH_STATUS and not kind.endswith("Runtime")
    controlled = controlled and (group != _KUBEFLOW or kind in _JOBS)
    for index, body in enumerate(bodies if controlled else ()):
        if body.get("served") is True and not _has_status(body) and _shows_status(body):
            found = "no status: its operator cannot say what became of an object"
            path = ("spec", "versions", index, "subresources", "status")
            remedy = "add subresources: {status: {}}"
            yield manifest.find(Code.OPERATOR, path, found, remedy)


def _has_status(version: "Mapping[str, Json]") -> bool:
    return "status" in (mapping(version.get("subresources")) or {})


def _shows_status(version: "Mapping[str, Json]") -> bool:
    """Tell whether objects have a status at all, as far as the schema says."""
    schema = mapping((mapping(version.get("schema")) or {}).get("openAPIV3Schema")) or {}
    properties = mapping(schema.get("properties"))
    return is_absent(schema.get("properties")) or "status" in (properties or {})


def served(together: ManifestSet) -> Iterator[Found]:
    """Require that a kind's definition serves the version of the objects beside it, and its scope.

    Kubernetes, "Versions in CustomResourceDefinitions": kubectl finds no kind of another version.
    """
    definitions = together.of(_DEFINITION)
    for definition in definitions:
        spec = definition.spec
        group, kind = text(spec.get("group")), text((mapping(spec.get("names")) or {}).get("kind"))
        # Beside examples of several releases there may be a definition of each.
        versions = {
            text(body.get("name")): True
            for other in definitions
            if other.name == definition.name
            for each in items(other.spec.get("versions")) or []
            if (body := mapping(each)) and body.get("served") is True
        }
        if not items(spec.get("versions")) or not group or not kind:
            continue
        for each in together.of(kind):
            version = (text(each.body.get("apiVersion")) or "").rpartition("/")[2]
            if each.group != group or versions.get(version) is True or is_placeholder(version):
                continue
            # What no release serves any more is found by itself.
            if served_instead(each) is not None:
                continue
            there = ", ".join(sorted(name for name, on in versions.items() if on is True and name))
            found = (
                f"{definition.title} does not serve {version}: the API server refuses the object"
            )
            remedy = f"write {group}/{there}" if there else "set served: true in the definition"
            yield each, each.find(Code.OPERATOR, ("apiVersion",), found, remedy)
            break
