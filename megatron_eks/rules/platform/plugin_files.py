"""Rules over how device plugins come by their configuration, and onto the nodes they are for."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.platform.device_plugins import Plugin, is_near, plugins
from megatron_eks.rules.platform.plugin_configs import embedded
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import EFA, GPU, Container, Manifest, Pod

_FLAG, _VARIABLE = "--config-file", "CONFIG_FILE"
_DEFAULT, _FOLDER = "DEFAULT_CONFIG", "CONFIG_FILE_SRCDIR"
_OF_PLUGINS = frozenset({"flags", "sharing"})


def is_config(manifest: Manifest) -> bool:
    """Tell whether a ConfigMap holds a configuration of NVIDIA's device plugin."""
    return any("version" in body and _OF_PLUGINS & {*body} for _, body in embedded(manifest))


def unread(together: ManifestSet) -> Iterator[Found]:
    """Refuse a configuration of the device plugin that it is given, and does not read.

    NVIDIA/k8s-device-plugin, README, "Configuration Option Details", and issue 615: it reads the
    file that --config-file or CONFIG_FILE names, and nothing of it from variables.
    """
    configs = [each for each in together.of("ConfigMap") if is_config(each)]
    for manifest in together.objects if configs else ():
        for plugin in plugins(manifest):
            if plugin.device == GPU:
                yield from _unread(plugin, [each.name for each in configs])


def _unread(plugin: Plugin, configs: "list[str | None]") -> Iterator[Found]:
    path: Path = plugin.container.path[1:]
    for index, value in enumerate(items(plugin.container.body.get("envFrom")) or []):
        source = mapping((mapping(value) or {}).get("configMapRef")) or {}
        if (name := text(source.get("name"))) in configs:
            found = f"ConfigMap/{name} as variables, and the plugin reads its configuration from "
            found += "a file: it has no effect"
            remedy = f"mount it as a volume, and set {_VARIABLE} to the file: /config/KEY"
            place = (*path, "envFrom", index)
            yield plugin.manifest, plugin.manifest.find(Code.PLUGIN_CONFIG, place, found, remedy)
    mounts = items(plugin.container.body.get("volumeMounts")) or []
    mounted = {text((mapping(each) or {}).get("name")) for each in mounts}
    for value in items(plugin.pod.spec.get("volumes")) or []:
        body = mapping(value) or {}
        name = text((mapping(body.get("configMap")) or {}).get("name"))
        told = _FLAG in plugin.container.line or any(
            each.name == _VARIABLE for each in plugin.container.variables
        )
        if name in configs and text(body.get("name")) in mounted and not told:
            found = f"ConfigMap/{name} is mounted, and neither {_FLAG} nor {_VARIABLE} names its "
            found += "file: it has no effect"
            remedy = f"add the variable {_VARIABLE} with the path of the file"
            yield (
                plugin.manifest,
                plugin.manifest.find(
                    Code.PLUGIN_CONFIG, (*path, "env"), found, remedy, Level.WARNING
                ),
            )


def other_name(together: ManifestSet) -> Iterator[Found]:
    """Warn of a ClusterPolicy whose ConfigMap only nearly has the name of the one beside it.

    GPU operator, "Time-Slicing GPUs in Kubernetes", and issue 529: the plugin's pods wait for a
    ConfigMap of that name, and the nodes offer what they did before.
    """
    configs = [each for each in together.of("ConfigMap") if is_config(each)]
    names = {each.name for each in together.of("ConfigMap")}
    for policy in together.of("ClusterPolicy") if configs else ():
        plugin = mapping(policy.spec.get("devicePlugin")) or {}
        name = text((mapping(plugin.get("config")) or {}).get("name"))
        near = [each.name for each in configs if each.name and is_near(policy, each)]
        known = not name or name in names or is_placeholder(name) or len(near) != 1
        if policy.group != "nvidia.com" or known:
            continue
        found = f"no ConfigMap {shown(name)} among these objects: the device plugin does not start"
        path: Path = ("spec", "devicePlugin", "config", "name")
        remedy = f"write {near[0]}, which is there"
        yield policy, policy.find(Code.PLUGIN_CONFIG, path, found, remedy, Level.WARNING)


def defaults(together: ManifestSet) -> Iterator[Found]:
    """Refuse a default configuration of the device plugin that its ConfigMap does not have.

    NVIDIA/k8s-device-plugin, README, "Multiple Config File Example", and its config-manager: on a
    node without the label nvidia.com/device-plugin.config it takes the one of DEFAULT_CONFIG.
    """
    for manifest in together.of("DaemonSet"):
        for pod in manifest.pods:
            for container in pod.containers:
                given = {each.name: each for each in container.variables}
                if not {_DEFAULT, _FOLDER} <= given.keys() or not given[_DEFAULT].value:
                    continue
                wanted = given[_DEFAULT].value or ""
                folder = (given[_FOLDER].value or "").rstrip("/")
                name = _config_at(pod, container, folder)
                config = together.named(manifest, "ConfigMap", name) if name else None
                data = mapping(config.body.get("data")) if config is not None else None
                if data and wanted not in data and not is_placeholder(wanted):
                    found = f"ConfigMap/{name} has no entry {shown(wanted)}: the plugin does not "
                    found += "start on nodes that name no other"
                    path: Path = (*container.path[1:], "env", given[_DEFAULT].index, "value")
                    remedy = f"there: {', '.join(sorted(data))}"
                    yield manifest, manifest.find(Code.PLUGIN_CONFIG, path, found, remedy)


def _config_at(pod: Pod, container: Container, folder: str) -> str | None:
    """Return the name of the ConfigMap that a container has in a directory."""
    mounted = {
        (text(body.get("mountPath")) or "").rstrip("/"): text(body.get("name"))
        for each in items(container.body.get("volumeMounts")) or []
        if (body := mapping(each) or {})
    }
    for value in items(pod.spec.get("volumes")) or []:
        body = mapping(value) or {}
        if folder in mounted and text(body.get("name")) == mounted[folder]:
            source = mapping(body.get("configMap")) or {}
            return text(source.get("name")) if "items" not in source else None
    return None


def efa_everywhere(manifest: Manifest) -> Iterator[Finding]:
    """Warn of EFA's device plugin on every node, of those without EFA too.

    aws/eks-charts, aws-efa-k8s-device-plugin, supportedInstanceLabels, and issue 1233: it exits on
    a node without an EFA device, and its pod restarts there without an end.
    """
    for plugin in plugins(manifest):
        spec = plugin.pod.spec
        chosen = any(not is_absent(spec.get(key)) for key in ("nodeSelector", "affinity"))
        if plugin.device == EFA and not chosen:
            found = "no nodeSelector and no affinity: on nodes without EFA the plugin exits, and "
            found += "restarts without an end"
            remedy = "select the EFA nodes, such as node.kubernetes.io/instance-type In [...]"
            path = (*plugin.pod.path[1:], "nodeSelector")
            yield manifest.find(Code.DEVICE_PLUGIN, path, found, remedy, Level.WARNING)
