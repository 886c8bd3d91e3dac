"""Rules over StatefulSets: the Service of their names, their claims, and the members of an etcd."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.objects.pod_selection import may_select
from megatron_eks.rules.values import is_placeholder, items, mapping, number, shown, text
from megatron_eks.rules.workloads import Container, Manifest

_ETCD = re.compile(r"(^|/)etcd([:@]|$)")
_NAME, _OWN = "--name", "--initial-advertise-peer-urls"
_ALL = "--initial-cluster"
_VARIABLE = re.compile(r"\$[({](\w+)[)}]")


def mounts(manifest: Manifest) -> Iterator[Finding]:
    """Require a volume, or a claim of its templates, for every mount.

    Kubernetes, "StatefulSets", volumeClaimTemplates: the volume has the template's name.
    """
    templates = items(manifest.spec.get("volumeClaimTemplates"))
    if (manifest.group, manifest.kind) != ("apps", "StatefulSet") or templates is None:
        return
    claims = [mapping((mapping(each) or {}).get("metadata")) or {} for each in templates]
    for pod in manifest.pods:
        volumes = items(pod.spec.get("volumes"))
        named = [*claims, *(mapping(each) or {} for each in volumes or [])]
        known = {text(each.get("name")) for each in named}
        if volumes is None or None in known:
            continue
        for container in pod.containers:
            for index, value in enumerate(items(container.body.get("volumeMounts")) or []):
                name = text((mapping(value) or {}).get("name"))
                if name is not None and name not in known and not is_placeholder(name):
                    path = (*container.path, "volumeMounts", index, "name")
                    found = f"no volume {shown(name)}: the API server refuses the pods"
                    there = ", ".join(sorted(filter(None, known))) or "none"
                    remedy = f"add it to volumes or volumeClaimTemplates; there: {there}"
                    yield Finding(Code.UNKNOWN_VOLUME, path, found, remedy)


def governing(together: ManifestSet) -> Iterator[Found]:
    """Warn of a StatefulSet whose pods have their names of a Service that is not there.

    Kubernetes, "StatefulSets", stable network identity: POD.SERVICE resolves for the headless
    Service of serviceName. One beside it that selects these pods is meant.
    """
    for manifest in together.of("StatefulSet"):
        name = text(manifest.spec.get("serviceName"))
        if not name or is_placeholder(name):
            continue
        own = together.named(manifest, "Service", name)
        if own is not None:
            yield from _addressed(manifest, name, own)
            continue
        near = [
            each
            for each in together.beside(manifest, "Service")
            if each.file == manifest.file and each.spec.get("clusterIP") == "None"
        ]
        taken = [
            each
            for each in near
            for pod in manifest.pods
            if (selector := mapping(each.spec.get("selector")))
            and may_select(selector, manifest, pod)
        ]
        if len(taken) == 1:
            found = f"no Service {shown(name)} among these, and {taken[0].title} is headless and "
            found += "selects these pods: no POD.SERVICE resolves"
            path: Path = ("spec", "serviceName")
            remedy = f"write {taken[0].name}"
            finding = manifest.find(Code.MISSING_OBJECT, path, found, remedy, Level.WARNING)
            yield manifest, finding


def _addressed(manifest: Manifest, name: str, service: Manifest) -> Iterator[Found]:
    """Find pods that call each other by a Service which gives them no names."""
    if service.spec.get("clusterIP") == "None" or manifest.name is None:
        return
    form = re.compile(
        rf"(\$[({{]\w+[)}}]|{re.escape(manifest.name)}-[0-9]+)\.{re.escape(name)}(?![\w-])"
    )
    for pod in manifest.pods:
        for container in pod.containers:
            met = next((one for _, word in container.words if (one := form.search(word))), None)
            if met is not None:
                found = (
                    f"no clusterIP: None, and {manifest.title} calls its pods {met[0]}: no such "
                )
                found += "name resolves"
                path: Path = ("spec", "clusterIP")
                remedy = "write clusterIP: None"
                finding = service.find(Code.SERVICE, path, found, remedy, Level.WARNING)
                yield service, finding
                return


def members(manifest: Manifest) -> Iterator[Finding]:
    """Require of each member of an etcd the address by which the others were told of it.

    etcd, "Clustering Guide", static: --initial-advertise-peer-urls of a member must match its
    entry in --initial-cluster, or it ends as it starts.
    """
    if manifest.kind != "StatefulSet" or manifest.name is None:
        return
    replicas = number(manifest.spec.get("replicas", 1)) or 0
    for pod in manifest.pods:
        for container in pod.containers:
            if _ETCD.search(text(container.body.get("image")) or ""):
                given = _flags(container)
                for number_ in range(replicas if {_NAME, _OWN, _ALL} <= given.keys() else 0):
                    yield from _member(manifest, container, given, f"{manifest.name}-{number_}")


def _flags(container: Container) -> dict[str, tuple[Path, str]]:
    words = container.words
    found = {}
    for index, (path, word) in enumerate(words):
        name, equals, value = word.partition("=")
        if not equals and index + 1 < len(words):
            path, value = words[index + 1]  # noqa: PLW2901 -- the value is the next word
        found[name] = (path, value)
    return found


def _member(
    manifest: Manifest, container: Container, given: dict[str, tuple[Path, str]], pod: str
) -> Iterator[Finding]:
    own = {
        text((mapping(each) or {}).get("name"))
        for each in items(container.body.get("env")) or []
        if (source := mapping((mapping(each) or {}).get("valueFrom")))
        and (mapping(source.get("fieldRef")) or {}).get("fieldPath") == "metadata.name"
    }

    def filled(flag: str) -> str:
        return _VARIABLE.sub(lambda met: pod if met[1] in own else "$", given[flag][1])

    name, address, listed = (filled(flag) for flag in (_NAME, _OWN, _ALL))
    entries = dict(each.partition("=")[::2] for each in listed.split(","))
    if "$" in f"{name}{address}{listed}" or "," in address:
        return
    if name not in entries:
        found = f"no member {name}, which {pod} is: it ends as it starts"
        remedy = f"add {name}={address}"
    elif entries[name] != address:
        found = f"{name} at {entries[name]}, and it says {address} of itself: it ends as it starts"
        remedy = f"write {name}={address}"
    else:
        return
    yield manifest.find(Code.MANIFEST_VALUE, given[_ALL][0][1:], found, remedy)
