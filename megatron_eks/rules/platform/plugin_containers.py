"""Rules over the containers of device plugins: where they see the kubelet, and the driver."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.platform.device_plugins import KUBELET, Plugin, plugins
from megatron_eks.rules.platform.plugin_configs import MIG_STRATEGIES
from megatron_eks.rules.values import items, mapping, shown, text
from megatron_eks.rules.workloads import GPU, Manifest

_VISIBLE, _CAPABILITIES = "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"
_NOTHING = frozenset({"", "none", "void"})
_NVML = frozenset({"all", "utility"})
# NVIDIA/k8s-device-plugin: the socket may be told.
_SOCKET = "KUBELET_SOCKET"


def sockets(manifest: Manifest) -> Iterator[Finding]:
    """Require the kubelet's directory of the node at the same path inside the container.

    Kubernetes, k8s.io/kubelet, pkg/apis/deviceplugin/v1beta1/constants.go: DevicePluginPath and
    KubeletSocket are built into the plugins; elsewhere they find no kubelet to register with.
    """
    for plugin in plugins(manifest):
        hosts = {
            text(body.get("name")): (text(host.get("path")) or "").rstrip("/")
            for each in items(plugin.pod.spec.get("volumes")) or []
            if (body := mapping(each) or {}) and (host := mapping(body.get("hostPath")))
        }
        if any(each.name == _SOCKET for each in plugin.container.variables):
            continue
        mounts = items(plugin.container.body.get("volumeMounts")) or []
        for index, value in enumerate(mounts):
            mount = mapping(value) or {}
            inside = (text(mount.get("mountPath")) or "").rstrip("/")
            if hosts.get(text(mount.get("name"))) != KUBELET or inside in {KUBELET, ""}:
                continue
            others = [(text((mapping(each) or {}).get("mountPath")) or "") for each in mounts]
            if any(f"{KUBELET}/".startswith(f"{each.rstrip('/')}/") for each in others):
                continue
            found = f"{KUBELET} of the node at {shown(inside)}, where the plugin does not look: "
            found += f"the node offers no {plugin.device}"
            path = (*plugin.container.path[1:], "volumeMounts", index, "mountPath")
            yield manifest.find(Code.DEVICE_PLUGIN, path, found, f"write mountPath: {KUBELET}")


def drivers(manifest: Manifest) -> Iterator[Finding]:
    """Warn of variables by which NVIDIA's plugin gets no GPU, or no library to count them with.

    NVIDIA Container Toolkit, "Specialized Configurations with Docker": none and void give no GPU,
    and the driver's libnvidia-ml comes with the capability utility alone.
    """
    for plugin in plugins(manifest):
        for where, said in _strategies(plugin):
            found = f"{shown(said)} is no strategy: the plugin stops"
            remedy = f"use {', '.join(MIG_STRATEGIES)}"
            yield manifest.find(Code.DEVICE_PLUGIN, where, found, remedy)
        for each in plugin.container.variables if plugin.device == GPU else ():
            path = (*plugin.container.path[1:], "env", each.index, "value")
            value = each.value
            if each.name == _VISIBLE and value is not None and value in _NOTHING:
                found = f"{shown(value)}: the plugin sees no GPU, and the node offers none"
                yield manifest.find(
                    Code.DEVICE_PLUGIN, path, found, f"write {_VISIBLE}: all", Level.WARNING
                )
            parts = {part.strip() for part in (value or "").split(",")}
            if each.name == _CAPABILITIES and value and not parts & _NVML and "$" not in value:
                found = f"{shown(value)} without utility: the plugin has no NVML to find GPUs by, "
                found += "and the node offers none"
                remedy = f"write {_CAPABILITIES}: compute,utility"
                yield manifest.find(Code.DEVICE_PLUGIN, path, found, remedy, Level.WARNING)


def _strategies(plugin: Plugin) -> Iterator[tuple[Path, str]]:
    """Return what flags tell a plugin of divided GPUs, where it is no word that it knows."""
    given: list[tuple[Path, str]] = [
        (path[1:], word.partition("=")[2])
        for path, word in plugin.container.words
        if word.startswith("--mig-strategy=")
    ]
    for path, said in given if plugin.device == GPU else []:
        if said and said not in MIG_STRATEGIES and "$" not in said and "{{" not in said:
            yield path, said
