"""Rules over settings of device plugins that collide with each other or miss their nodes."""

from collections.abc import Iterator
from fractions import Fraction

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.hardware import type_names
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet, in_one_folder
from megatron_eks.rules.objects.named_pools import pools_of
from megatron_eks.rules.platform.device_plugins import Plugin, is_near, plugins
from megatron_eks.rules.values import truth
from megatron_eks.rules.workloads import EFA, GPU, Container, Manifest, Pod

_MOFED = "MOFED_ENABLED"


def infiniband(together: ManifestSet) -> Iterator[Found]:
    """Refuse that NVIDIA's plugin hands out the devices that the plugin for EFA hands out.

    NVIDIA/k8s-device-plugin, README, MOFED_ENABLED: each container with a GPU gets all of
    /dev/infiniband, which the EFA plugin gives one by one (aws-samples/aws-efa-eks).
    """
    every = [each for manifest in together.objects for each in plugins(manifest)]
    asked = any(pod.names(EFA) for manifest in together.objects for pod in manifest.pods)
    if not asked and not any(each.device == EFA for each in every):
        return
    for plugin in every:
        place = _switched_on(plugin.container) if plugin.device == GPU else None
        if place is not None:
            found = "NVIDIA's plugin gives pods all of /dev/infiniband, beside the plugin for EFA"
            remedy = "set it to false: the EFA plugin hands these devices out"
            finding = plugin.manifest.find(Code.DEVICE_PLUGIN, place, found, remedy)
            yield plugin.manifest, finding


def _switched_on(container: Container) -> Path | None:
    for each in container.variables:
        if each.name == _MOFED and truth(each.value) is True:
            return (*container.path[1:], "env", each.index, "value")
    for path, word in container.words:
        if word in {"--mofed-enabled", "--mofed-enabled=true"}:
            return path[1:]
    return None


def kept_to_types(together: ManifestSet) -> Iterator[Found]:
    """Warn of a device plugin that its own selection keeps off the nodes of the pods beside it.

    Kubernetes, "Device Plugins": a node without the plugin offers none of its devices, so a pod
    that asks for one stays Pending.
    """
    for manifest in together.objects:
        for plugin in plugins(manifest):
            own = type_names(plugin.pod)
            if not own:
                continue
            met = (
                _missed_pools(plugin, own, together)
                or _missed_pods(plugin, own, together)
                or _missed_sizes(plugin, own, together)
            )
            if met is not None:
                who, wanted = met
                found = f"only on {', '.join(sorted(own))}, and {who} {', '.join(sorted(wanted))}"
                found += f", which then offer no {plugin.device}"
                path = (*plugin.pod.path[1:], "affinity")
                remedy = f"add {', '.join(sorted(wanted))} to its instance types"
                yield (
                    manifest,
                    manifest.find(Code.DEVICE_PLUGIN, path, found, remedy, Level.WARNING),
                )


def types_without(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a plugin for EFA that is sent to types of nodes that have none.

    aws/sagemaker-hyperpod-cli, issue 367: it ends there with "No valid EFA devices found", again
    and again.
    """
    for plugin in plugins(manifest):
        own = type_names(plugin.pod) if plugin.device == EFA else set()
        bare = sorted(each for each in own if each in INSTANCES and not _efa_of(each))
        if bare:
            found = f"no EFA on {', '.join(bare)}, where the plugin ends again and again"
            path = (*plugin.pod.path[1:], "affinity")
            remedy = f"take {', '.join(bare)} out of its instance types"
            yield manifest.find(Code.DEVICE_PLUGIN, path, found, remedy, Level.WARNING)


def _efa_of(name: str) -> int:
    return INSTANCES[name].efa_interfaces


def _missed_pods(
    plugin: Plugin, own: set[str], together: ManifestSet
) -> tuple[str, set[str]] | None:
    for other in together.objects:
        if not (in_one_folder(plugin.manifest, other) or _beside(plugin.manifest, other)):
            continue
        for pod in other.pods if other is not plugin.manifest else ():
            wanted = type_names(pod) if pod.names(plugin.device) else set()
            if wanted and wanted.isdisjoint(own):
                return f"{other.title} runs on", wanted
    return None


def _missed_sizes(
    plugin: Plugin, own: set[str], together: ManifestSet
) -> tuple[str, set[str]] | None:
    """Return a job that asks for whole nodes of other types, by their GPUs and EFA interfaces."""
    asked = [
        (other, _whole(pod))
        for other in together.objects
        if in_one_folder(plugin.manifest, other) or _beside(plugin.manifest, other)
        for pod in other.pods
        if pod.names(EFA) and pod.names(GPU) and not type_names(pod)
    ]
    # One that fits says that the plugin is right, and the others are judged by what it offers.
    known = plugin.device == EFA and own <= INSTANCES.keys()
    if not known or any(own & types for _, types in asked):
        return None
    return next(
        ((f"{other.title} asks for all of a", types) for other, types in asked if types), None
    )


def _whole(pod: Pod) -> set[str]:
    """Return the types whose GPUs and EFA interfaces a pod takes all."""
    gpus, interfaces = _asked(pod, GPU), _asked(pod, EFA)
    return {
        name
        for name, each in INSTANCES.items()
        if each.gpus == gpus and each.efa_interfaces == interfaces
    }


def _asked(pod: Pod, resource: str) -> Fraction:
    return sum((each.amount(resource) or Fraction(0) for each in pod.containers), Fraction(0))


def _missed_pools(
    plugin: Plugin, own: set[str], together: ManifestSet
) -> tuple[str, set[str]] | None:
    for made in (pool for each in together.objects for pool in pools_of(each)):
        lacking = set(made.types) & _offering(plugin.device) - own
        if lacking and is_near(plugin.manifest, made.manifest):
            return f"{made.title} starts", lacking
    for pool in together.node_pools:
        offers = [
            each.efa_interfaces if plugin.device == EFA else each.gpus for each in pool.instances
        ]
        if pool.types and offers and all(offers) and own.isdisjoint(pool.types):
            return f"node group {pool.name} is on", set(pool.types)
    return None


def _offering(device: str) -> set[str]:
    return {
        name
        for name, each in INSTANCES.items()
        if (each.efa_interfaces if device == EFA else each.gpus)
    }


def _beside(one: Manifest, other: Manifest) -> bool:
    """Tell objects of one cluster: in folders beside each other, such as platform and jobs."""
    folders = [each.file.split("/")[:-2] for each in (one, other)]
    return folders[0] == folders[1]
