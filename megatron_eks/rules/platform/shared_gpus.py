"""Rules over GPUs that a device plugin shares or divides, and what pods ask for beside it."""

from collections.abc import Iterator
from dataclasses import dataclass

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json, read_documents
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.platform.device_plugins import Plugin, is_near, may_meet, plugins
from megatron_eks.rules.values import items, mapping, number, shown, text, truth
from megatron_eks.rules.workloads import GPU, Manifest, Pod

_SLICE = "nvidia.com/mig-"
_STRATEGIES = ("mixed", "none", "single")
_HOW = {"timeSlicing": "time slices", "mps": "MPS"}


@dataclass(frozen=True)
class Sharing:
    """How a plugin shares one resource."""

    config: Manifest
    path: Path
    how: str
    resource: str
    renamed: str | None
    replicas: int
    refuses_many: bool


def shared(together: ManifestSet) -> Iterator[Found]:
    """Refuse pods that ask for more than one shared GPU, or for one that has another name.

    NVIDIA/k8s-device-plugin, README, "Shared Access to GPUs": with failRequestsGreaterThanOne, and
    always with MPS, more than one ends with UnexpectedAdmissionError; renameByDefault offers
    nvidia.com/gpu.shared instead. A larger number buys no more of a GPU otherwise.
    """
    for plugin in _of_nvidia(together):
        for sharing in _sharings(plugin, together):
            for manifest in together.objects:
                for pod in manifest.pods if manifest is not plugin.manifest else ():
                    if not (may_meet(plugin.pod, pod) and is_near(plugin.manifest, manifest)):
                        continue
                    met = _misfit(pod, sharing)
                    if met is not None:
                        level, found, remedy, path = met
                        finding = manifest.find(Code.SHARED_DEVICES, path, found, remedy, level)
                        yield manifest, finding
                        break


def _misfit(pod: Pod, sharing: Sharing) -> "tuple[Level, str, str, Path] | None":
    plain, given = sharing.resource, sharing.renamed
    offered = given or plain
    by = f"{sharing.config.title} shares each GPU by {_HOW[sharing.how]}"
    for container in pod.containers:
        path = (*container.path[1:], "resources", "limits")
        one, many = container.amount(plain), container.amount(offered)
        if given and one:
            found = f"{by} as {given}, so no node offers {plain}: the pod stays Pending"
            remedy = f"ask for {given}, or keep sharing off the nodes of this job"
            return Level.ERROR, found, remedy, (*path, plain)
        if not many or many <= 1:
            continue
        remedy = "share no GPUs of the nodes of this job"
        if sharing.refuses_many:
            found = (
                f"{int(many)} of {offered}, and {by}, one to a container: UnexpectedAdmissionError"
            )
            return Level.ERROR, found, remedy, (*path, offered)
        found = f"{int(many)} of {offered}, and {by}: several of them may be one GPU"
        return Level.WARNING, found, remedy, (*path, offered)
    return None


def _of_nvidia(together: ManifestSet) -> Iterator[Plugin]:
    for manifest in together.objects:
        yield from (each for each in plugins(manifest) if each.device == GPU)


def _config(
    plugin: Plugin, together: ManifestSet
) -> "tuple[Manifest, str, dict[str, Json]] | None":
    """Return the one configuration of a plugin; of several, nodes choose by a label."""
    for value in items(plugin.pod.spec.get("volumes")) or []:
        source = mapping((mapping(value) or {}).get("configMap")) or {}
        name = text(source.get("name"))
        config = together.named(plugin.manifest, "ConfigMap", name) if name else None
        data = mapping(config.body.get("data")) if config is not None else None
        if config is None or data is None or len(data) != 1:
            continue
        ((key, written),) = data.items()
        documents = read_documents(text(written) or "", "")
        body = mapping(documents[0].value) if len(documents) == 1 else None
        if body and not documents[0].findings:
            return config, key, body
    return None


def _sharings(plugin: Plugin, together: ManifestSet) -> Iterator[Sharing]:
    found = _config(plugin, together)
    if found is None:
        return
    config, key, body = found
    sharing = mapping(body.get("sharing")) or {}
    for how in _HOW:
        part = mapping(sharing.get(how)) or {}
        for value in items(part.get("resources")) or []:
            resource = mapping(value) or {}
            name, replicas = text(resource.get("name")), number(resource.get("replicas"))
            if name != GPU or replicas is None or replicas <= 1:
                continue
            own = text(resource.get("rename"))
            renamed = own or (f"{name}.shared" if truth(part.get("renameByDefault")) else None)
            refuses = how == "mps" or truth(part.get("failRequestsGreaterThanOne")) is True
            path = ("data", key)
            yield Sharing(config, path, how, name, renamed, replicas, refuses)


def divided(together: ManifestSet) -> Iterator[Found]:
    """Refuse slices of a GPU that no plugin beside the pod offers.

    NVIDIA/k8s-device-plugin, README, migStrategy: only `mixed` offers nvidia.com/mig-NAME; with
    `single` they are nvidia.com/gpu, and with `none`, the default, there are none.
    """
    strategies = [(each, _strategy(each, together)) for each in _of_nvidia(together)]
    known = [value for _, value in strategies]
    if not known or None in known or "mixed" in known:
        return
    plugin, strategy = strategies[0]
    for manifest in together.objects:
        for pod in manifest.pods:
            for container in pod.containers:
                named = {*container.amounts("limits"), *container.amounts("requests")}
                slices = sorted(each for each in named if each.startswith(_SLICE))
                near = is_near(plugin.manifest, manifest)
                if slices and near and may_meet(plugin.pod, pod):
                    found = (
                        f"no node offers {slices[0]}: migStrategy of {plugin.manifest.title} is "
                    )
                    path = (*container.path[1:], "resources", "limits", slices[0])
                    remedy = f"set MIG_STRATEGY to mixed there, or ask for {GPU}"
                    finding = manifest.find(
                        Code.SHARED_DEVICES, path, found + str(strategy), remedy
                    )
                    yield manifest, finding
                    break


def _strategy(plugin: Plugin, together: ManifestSet) -> str | None:
    """Return how a plugin divides GPUs; None where nobody can know."""
    for each in plugin.container.variables:
        if each.name == "MIG_STRATEGY":
            return each.value
    words = [word for _, word in plugin.container.words]
    for index, word in enumerate(words):
        name, _, value = word.partition("=")
        if name == "--mig-strategy":
            return value or (words[index + 1] if index + 1 < len(words) else None)
    if plugin.container.body.get("envFrom"):
        return None
    found = _config(plugin, together)
    if found is None:
        named = any("CONFIG" in each.name for each in plugin.container.variables)
        return None if named or "--config-file" in plugin.container.line else "none"
    flags = mapping(found[2].get("flags")) or {}
    return text(flags.get("migStrategy")) or "none"


def strategies(manifest: Manifest) -> Iterator[Finding]:
    """Require a strategy for MIG that the plugin knows.

    NVIDIA/k8s-device-plugin, README, migStrategy: it stops at another word.
    """
    for plugin in plugins(manifest) if manifest.kind == "DaemonSet" else ():
        for each in plugin.container.variables:
            unknown = each.value is not None and each.value not in _STRATEGIES
            if each.name == "MIG_STRATEGY" and unknown and "$" not in (each.value or ""):
                path = (*plugin.container.path[1:], "env", each.index, "value")
                found = f"no strategy {shown(each.value)}: the plugin stops"
                remedy = f"use {', '.join(_STRATEGIES)}"
                yield manifest.find(Code.SHARED_DEVICES, path, found, remedy)
