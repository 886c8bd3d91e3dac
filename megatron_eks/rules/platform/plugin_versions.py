"""Rules over device plugins too old for their nodes, and devices that pods take beside them."""

import re
from collections.abc import Iterator, Mapping

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.hardware import type_names
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.platform.device_plugins import Plugin, is_near, plugins
from megatron_eks.rules.values import items, mapping, shown, text
from megatron_eks.rules.workloads import EFA, GPU, Manifest, Pod

_VERSION = re.compile(r":v?(?P<major>[0-9]+)\.(?P<minor>[0-9]+)\.(?P<patch>[0-9]+)")
_OLD = (0, 5, 10)
_SINCE = "v0.5.10"
_GRABBING = ((0, 19, 0), (0, 19, 2))
# The plugin's own chart lists some thirty types; who lists a few has them.
_OWN_LIST = 6
# Beside their EFA devices these have others in /dev/infiniband.
_MIXED = re.compile(r"p6")
_DEVICES = {EFA: re.compile(r"/dev/infiniband(/.*)?"), GPU: re.compile(r"/dev/nvidia[\w-]*(/.*)?")}


def old_plugins(together: ManifestSet) -> Iterator[Found]:
    """Refuse the plugin for EFA before v0.5.10 on P6 nodes.

    aws/sagemaker-hyperpod-cli, pull request 282: it takes the NVLink controllers of
    p6-b200.48xlarge for EFA devices, offers ten of eight, and NCCL fails with the wrong ones.
    """
    for manifest in together.objects:
        for plugin in plugins(manifest):
            match = _VERSION.search(text(plugin.container.body.get("image")) or "")
            if plugin.device != EFA or match is None:
                continue
            version = tuple(int(match[each]) for each in ("major", "minor", "patch"))
            types = {each for each in _types(plugin, together) if _MIXED.match(each)}
            level = Level.ERROR if types else Level.WARNING
            listed = type_names(plugin.pod)
            if not types and len(listed) <= _OWN_LIST:
                types = {each for each in listed if _MIXED.match(each)}
            if version < _OLD and types:
                found = f"{match[0][1:]} takes the NVLink controllers of {min(types)} for EFA"
                path = (*plugin.container.path[1:], "image")
                remedy = f"use {_SINCE} or later"
                yield manifest, manifest.find(Code.DEVICE_PLUGIN, path, found, remedy, level)


def grabbing_plugins(manifest: Manifest) -> Iterator[Finding]:
    """Warn of the releases of NVIDIA's plugin that hand out /dev/infiniband, which is EFA's.

    NVIDIA/k8s-device-plugin, issue 1692: 0.19.0 to 0.19.2 have MOFED on by default, and their pods
    get all devices of the directory beside those of the plugin for EFA; 0.19.3 has it off again.
    """
    for plugin in plugins(manifest):
        match = _VERSION.search(text(plugin.container.body.get("image")) or "")
        if plugin.device != GPU or match is None:
            continue
        version = tuple(int(match[each]) for each in ("major", "minor", "patch"))
        said = any(each.name == "MOFED_ENABLED" for each in plugin.container.variables)
        words = " ".join(word for _, word in plugin.container.words)
        told = said or "mofed" in words or plugin.container.body.get("envFrom")
        if _GRABBING[0] <= version <= _GRABBING[1] and not told:
            found = f"{match[0][1:]} gives pods all of /dev/infiniband, beside the plugin for EFA"
            path = (*plugin.container.path[1:], "image")
            remedy = 'use v0.19.3 or later, or set MOFED_ENABLED to "false"'
            yield manifest.find(Code.DEVICE_PLUGIN, path, found, remedy, Level.WARNING)


def _types(plugin: Plugin, together: ManifestSet) -> "set[str]":
    """Return the types of nodes of a plugin that pods use, and those that it names itself."""
    own = type_names(plugin.pod)
    used = {
        name
        for manifest in together.objects
        for pod in manifest.pods
        if manifest is not plugin.manifest and (pod.names(EFA) or pod.names(GPU))
        for name in type_names(pod)
    }
    used |= {name for pool in together.node_pools for name in pool.types or ()}
    # A list of every type that has EFA says nothing about the nodes that there are.
    return {each for each in used if not own or each in own} or (own if len(own) == 1 else set())


def host_devices(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a node's devices that a pod mounts, where it asks their plugin for some of them.

    aws-samples/aws-do-eks, pull request 63: with all of /dev/infiniband libfabric opens devices
    that are no EFA and finds none, so NCCL goes over TCP. Kubernetes, "Device Plugins": the
    runtime lets a container use what the plugin gave it, and nothing else.
    """
    if manifest.kind == "DaemonSet":
        return
    for pod in manifest.pods:
        privileged = [_is_privileged(each.body) for each in pod.containers if not each.is_init]
        for index, value in enumerate(items(pod.spec.get("volumes")) or []):
            host = text((mapping((mapping(value) or {}).get("hostPath")) or {}).get("path")) or ""
            for device, form in _DEVICES.items():
                if not form.fullmatch(host.rstrip("/")) or not pod.names(device):
                    continue
                mixed = device == EFA and any(_MIXED.match(each) for each in type_names(pod))
                found = f"{host} of the node beside {device}: "
                found += (
                    "libfabric meets devices there that are no EFA, and NCCL goes over TCP"
                    if mixed
                    else "the plugin gives the pod its own devices"
                    if all(privileged) and privileged
                    else "the pod may open only what the plugin gave it"
                )
                path: Path = (*pod.path, "volumes", index, "hostPath")
                level = Level.ERROR if mixed else Level.WARNING
                remedy = f"remove the volume: {device} brings the devices"
                yield Finding(Code.SHARED_DEVICES, path, found, remedy, level)


def _is_privileged(body: "Mapping[str, Json]") -> bool:
    context = mapping(body.get("securityContext")) or {}
    return context.get("privileged") is True


def offered(together: ManifestSet) -> Iterator[Found]:
    """Warn of pods that are kept to nodes where the plugin of their device does not run.

    Kubernetes, "Assigning Pods to Nodes" and "Device Plugins": by a nodeSelector of the plugin that
    contradicts that of the pods no node offers the device to them.
    """
    every = [each for manifest in together.objects for each in plugins(manifest)]
    for manifest in together.objects:
        near = [each for each in every if is_near(each.manifest, manifest)]
        for pod in manifest.pods:
            for device in (GPU, EFA):
                mine = [each for each in near if each.device == device and pod.names(device)]
                if not mine or any(_apart(each.pod, pod) is None for each in mine):
                    continue
                plugin, key = mine[0], _apart(mine[0].pod, pod) or ""
                value = _selector(plugin.pod)[key]
                found = f"{key}: {shown(value)} of {plugin.manifest.title}, which offers {device}, "
                found += "and another value here: the pod stays Pending"
                path = (*pod.path[1:], "nodeSelector", key)
                remedy = "let both select the same nodes"
                yield (
                    manifest,
                    manifest.find(Code.DEVICE_PLUGIN, path, found, remedy, Level.WARNING),
                )


def _apart(one: Pod, other: Pod) -> str | None:
    """Return a label of which two pods demand different values."""
    first, second = _selector(one), _selector(other)
    return next((key for key in first if key in second and second[key] != first[key]), None)


def _selector(pod: Pod) -> "dict[str, Json]":
    return mapping(pod.spec.get("nodeSelector")) or {}
