"""Rules over NVIDIA's GPU operator and node feature discovery, and what they read beside them."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.objects.named_pools import pools_of
from megatron_eks.rules.objects.node_labels import wanted
from megatron_eks.rules.platform.device_plugins import is_near, plugins
from megatron_eks.rules.platform.plugin_configs import MIG_STRATEGIES, embedded, mig_configs
from megatron_eks.rules.values import is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import GPU, Manifest, Pod

# NVIDIA/gpu-operator, api/nvidia/v1/clusterpolicy_types.go, ClusterPolicySpec.
_PARTS = (
    *("operator", "daemonsets", "driver", "toolkit", "devicePlugin", "dcgmExporter", "dcgm"),
    *(
        "nodeStatusExporter",
        "gfd",
        "mig",
        "migManager",
        "psp",
        "psa",
        "validator",
        "gds",
        "gdrcopy",
    ),
    *("sandboxWorkloads", "vfioManager", "sandboxDevicePlugin", "vgpuManager", "cdi"),
    *("vgpuDeviceManager", "kataManager", "ccManager", "hostPaths", "kataSandboxDevicePlugin"),
)
_CLOSE = 0.85
_RUNTIMES = ("containerd", "crio", "docker")
_EXPORTER = re.compile(r"(^|/)dcgm-exporter([:@]|$)")
_REMOTE = re.compile(r"-r(=.*)?|--remote-hostengine-info(=.*)?")
_MIG_LABEL, _PLUGIN_LABEL = "nvidia.com/mig.config", "nvidia.com/device-plugin.config"
_OF_PCI = re.compile(r"feature\.node\.kubernetes\.io/pci-([0-9a-f_]+)\.present")
# Node Feature Discovery, "Worker configuration reference", sources.pci: what it labels by itself.
_DEFAULT_FIELDS = ("class", "vendor")


def settings(manifest: Manifest) -> Iterator[Finding]:
    """Require of a ClusterPolicy words that the operator knows.

    NVIDIA/gpu-operator, api/nvidia/v1/clusterpolicy_types.go: the API server refuses another.
    """
    if not _is_policy(manifest):
        return
    version = (text(manifest.body.get("apiVersion")) or "").partition("/")[2]
    if version and version != "v1" and not is_placeholder(version):
        found = f"a ClusterPolicy has no version {version}: the API server knows no such kind"
        yield manifest.find(Code.API_VERSION, ("apiVersion",), found, "write nvidia.com/v1")
    for key, value in manifest.spec.items():
        said = (mapping(value) or {}).get("enabled")
        if isinstance(said, str) and not is_placeholder(said):
            found = f"{shown(said)} is a text: the API server refuses the policy"
            path: Path = ("spec", key, "enabled")
            yield manifest.find(
                Code.MANIFEST_VALUE, path, found, "write true or false, without quotes"
            )
        close = get_close_matches(_plain(key), [_plain(each) for each in _PARTS], 1, _CLOSE)
        meant = next((each for each in _PARTS if close and _plain(each) == close[0]), None)
        if key not in _PARTS and meant is not None:
            found = f"a ClusterPolicy has no {key}: it is refused, or nobody reads it"
            path = ("spec", key)
            yield manifest.find(Code.PLUGIN_CONFIG, path, found, f"did you mean {meant}?")
    for keys, words in (
        (("mig", "strategy"), MIG_STRATEGIES),
        (("operator", "defaultRuntime"), _RUNTIMES),
    ):
        said = text(_at(manifest, *keys))
        if said is not None and said not in words and not is_placeholder(said):
            found = f"{shown(said)}, which the operator does not know"
            place = ("spec", *keys)
            yield manifest.find(Code.PLUGIN_CONFIG, place, found, f"use {', '.join(words)}")


def _plain(key: str) -> str:
    return key.replace("-", "").replace("_", "").lower()


def _is_policy(manifest: Manifest) -> bool:
    return (manifest.group, manifest.kind) == ("nvidia.com", "ClusterPolicy")


def _at(manifest: Manifest, *keys: str) -> Json:
    value: Json = dict(manifest.spec)
    for key in keys:
        value = (mapping(value) or {}).get(key)
    return value


def configs(together: ManifestSet) -> Iterator[Found]:
    """Require of the ConfigMaps that a ClusterPolicy names the entries that it and nodes choose.

    GPU operator, "Time-Slicing GPUs in Kubernetes" and "MIG Support": the default is a key of
    data, or of mig-configs; a node chooses another by a label.
    """
    for policy in (each for each in together.of("ClusterPolicy") if _is_policy(each)):
        for part, label in (("devicePlugin", _PLUGIN_LABEL), ("migManager", _MIG_LABEL)):
            name = text(_at(policy, part, "config", "name"))
            config = next((e for e in together.of("ConfigMap") if name and e.name == name), None)
            known = _entries(config, part) if config is not None else []
            if config is None or not known:
                continue
            default = text(_at(policy, part, "config", "default"))
            if default and default not in known and not is_placeholder(default):
                path: Path = ("spec", part, "config", "default")
                yield policy, _no_entry(policy, path, default, config, known)
            for pools in together.objects:
                for pool in pools_of(pools):
                    chosen = pool.labels.get(label)
                    if chosen is not None and chosen not in known:
                        yield pools, _no_entry(pools, ("spec",), chosen, config, known)


def _entries(config: Manifest, part: str) -> list[str]:
    if part == "devicePlugin":
        return sorted(mapping(config.body.get("data")) or {})
    return sorted(name for _, named in mig_configs(config) for name in named)


def _no_entry(
    manifest: Manifest, path: Path, name: str, config: Manifest, known: list[str]
) -> Finding:
    found, remedy = f"{config.title} has no entry {shown(name)}", f"there: {', '.join(known)}"
    return manifest.find(Code.PLUGIN_CONFIG, path, found, remedy)


def second_plugin(together: ManifestSet) -> Iterator[Found]:
    """Warn of the operator's device plugin beside one that somebody else installs.

    Kubernetes, "Device Plugins": the last to register wins; GPU operator, "Common Deployment
    Scenarios": devicePlugin.enabled is false where another one runs.
    """
    for policy in (each for each in together.of("ClusterPolicy") if _is_policy(each)):
        if _at(policy, "devicePlugin", "enabled") is False:
            continue
        for other in together.of("DaemonSet"):
            if is_near(policy, other) and any(each.device == GPU for each in plugins(other)):
                found = f"{other.title} offers {GPU} on the same nodes"
                remedy = "set devicePlugin.enabled: false, or remove the DaemonSet"
                path = ("spec", "devicePlugin", "enabled")
                finding = policy.find(Code.DEVICE_PLUGIN, path, found, remedy, Level.WARNING)
                yield policy, finding
                break


def second_exporter(together: ManifestSet) -> Iterator[Found]:
    """Warn of the operator's exporter of metrics beside one that somebody else installs.

    NVIDIA/dcgm-exporter, issue 7: what reads the profiling fields cannot be shared by two host
    engines on a node; one that asks the operator's engine is no second one.
    """
    for policy in (each for each in together.of("ClusterPolicy") if _is_policy(each)):
        if _at(policy, "dcgmExporter", "enabled") is False:
            continue
        for other in together.of("DaemonSet"):
            if is_near(policy, other) and any(_exports(pod) for pod in other.pods):
                found = f"{other.title} reads DCGM's fields on the same nodes: one of the two gets "
                found += "no profiling fields"
                remedy = "set dcgmExporter.enabled: false, or remove the DaemonSet"
                path = ("spec", "dcgmExporter", "enabled")
                finding = policy.find(Code.DEVICE_PLUGIN, path, found, remedy, Level.WARNING)
                yield policy, finding
                break


def _exports(pod: Pod) -> bool:
    for container in pod.containers:
        remote = any(_REMOTE.fullmatch(word) for _, word in container.words) or any(
            each.name == "DCGM_REMOTE_HOSTENGINE_INFO" for each in container.variables
        )
        if _EXPORTER.search(text(container.body.get("image")) or "") and not remote:
            return True
    return False


def features(together: ManifestSet) -> Iterator[Found]:
    """Require of a label for PCI devices the fields that the worker beside it writes into one.

    Node Feature Discovery, "Worker configuration reference", deviceLabelFields: the label is made
    of these, joined by underscores, and pods that select another wait for ever.
    """
    fields = [
        (config, given)
        for config in together.of("ConfigMap")
        for _, body in embedded(config)
        if (given := _label_fields(body)) is not None
    ]
    if len(fields) != 1:
        return
    config, given = fields[0]
    for manifest in together.objects:
        for pod in manifest.pods if is_near(config, manifest) else ():
            for path, key, _ in wanted(pod):
                said = _OF_PCI.fullmatch(key)
                if said is not None and len(said[1].split("_")) != len(given):
                    found = f"{config.title} labels {' and '.join(given)}, as in {_example(given)}"
                    remedy = "write the label so, or change deviceLabelFields"
                    finding = manifest.find(
                        Code.NODE_SELECTOR, path[1:], found, remedy, Level.WARNING
                    )
                    yield manifest, finding


def _label_fields(body: "dict[str, Json]") -> tuple[str, ...] | None:
    pci = mapping((mapping(body.get("sources")) or {}).get("pci"))
    if pci is None or "pci" not in (mapping(body.get("sources")) or {}):
        return None
    listed = items(pci.get("deviceLabelFields"))
    return tuple(str(each) for each in listed or []) or _DEFAULT_FIELDS


def _example(fields: tuple[str, ...]) -> str:
    parts = {"class": "0302", "vendor": "10de"}
    return f"pci-{'_'.join(parts.get(each, '2330') for each in fields)}.present"
