"""Rules over the files that NVIDIA's device plugin and MIG manager read from ConfigMaps."""

import re
from collections.abc import Iterator, Mapping

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json, read_documents
from megatron_eks.rules.hardware import instance_types
from megatron_eks.rules.values import (
    is_absent,
    is_placeholder,
    items,
    mapping,
    number,
    shown,
    text,
)
from megatron_eks.rules.workloads import GPU, Manifest

MIG_STRATEGIES = ("mixed", "none", "single")
_HOW = ("timeSlicing", "mps")
# NVIDIA/k8s-device-plugin, README, "Configuration": the only place where each key is read.
_PLACES = {
    "failRequestsGreaterThanOne": ("sharing.timeSlicing", "sharing.mps"),
    "renameByDefault": ("sharing.timeSlicing", "sharing.mps"),
    "timeSlicing": ("sharing",),
    "mps": ("sharing",),
    "migStrategy": ("flags",),
    "failOnInitError": ("flags",),
    "deviceListStrategy": ("flags.plugin",),
    "deviceIDStrategy": ("flags.plugin",),
    "passDeviceSpecs": ("flags.plugin",),
}
_WORDS = {
    "migStrategy": MIG_STRATEGIES,
    "deviceIDStrategy": ("uuid", "index"),
}
_FEWEST = 2
# NVIDIA/mig-parted, examples/config.yaml: what a profile has beside it stands behind a +, and what
# it is without behind a -, as in 1g.24gb-me.
_PROFILE = re.compile(r"(?P<plain>[1-7]g\.[0-9]+gb)([+-].+)?")
# NVIDIA, MIG User Guide, "Supported MIG Profiles": the profiles of each GPU, with the eighths of
# memory that one takes; its sevenths of the processors are in the name.
_GPUS = {
    "A100 40GB": {
        "1g.5gb": 1,
        "1g.10gb": 2,
        "2g.10gb": 2,
        "3g.20gb": 4,
        "4g.20gb": 4,
        "7g.40gb": 8,
    },
    "A100 and H100 80GB": {
        "1g.10gb": 1,
        "1g.20gb": 2,
        "2g.20gb": 2,
        "3g.40gb": 4,
        "4g.40gb": 4,
        "7g.80gb": 8,
    },
    "H200 141GB": {
        "1g.18gb": 1,
        "1g.35gb": 2,
        "2g.35gb": 2,
        "3g.71gb": 4,
        "4g.71gb": 4,
        "7g.141gb": 8,
    },
    "GB300 288GB": {
        "1g.35gb": 1,
        "1g.70gb": 2,
        "2g.70gb": 2,
        "3g.139gb": 4,
        "4g.139gb": 4,
        "7g.278gb": 8,
    },
    "B300 288GB": {
        "1g.34gb": 1,
        "1g.67gb": 2,
        "2g.67gb": 2,
        "3g.135gb": 4,
        "4g.135gb": 4,
        "7g.269gb": 8,
    },
    "B200 180GB": {
        "1g.23gb": 1,
        "1g.45gb": 2,
        "2g.45gb": 2,
        "3g.90gb": 4,
        "4g.90gb": 4,
        "7g.180gb": 8,
    },
}
# NVIDIA/mig-parted, config.yaml: what others are divided into; how many of each is not told here.
_OTHERS = (
    "1g.6gb 1g.12gb 2g.12gb 4g.24gb",
    "1g.12gb 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb",
    "1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb",
    "1g.18gb 1g.36gb 2g.36gb 3g.72gb 4g.72gb 7g.144gb",
    "1g.23gb 1g.24gb 1g.47gb 2g.47gb 3g.93gb 3g.95gb 4g.93gb 4g.95gb 7g.186gb 7g.189gb",
    "1g.12gb 1g.16gb 1g.24gb 2g.24gb 2g.32gb 2g.48gb 4g.48gb 4g.96gb",
)
_SEVENTHS, _EIGHTHS = 7, 8
_SLICE = "nvidia.com/mig-"
# What the GPUs of instance types are called there; those without MIG have none.
_CALLED = {
    "A100-SXM4-40GB": "A100 40GB",
    "A100-SXM4-80GB": "A100 and H100 80GB",
    "H100 80GB HBM3": "A100 and H100 80GB",
    "H200": "H200 141GB",
    "B200": "B200 180GB",
    "A10G": None,
    "L4": None,
    "L40S": None,
}


def embedded(manifest: Manifest) -> "Iterator[tuple[Path, dict[str, Json]]]":
    """Return every mapping that a ConfigMap holds as the text of a file, with its place."""
    for key, written in (mapping(manifest.body.get("data")) or {}).items():
        content = text(written) or ""
        if manifest.kind == "ConfigMap" and ":" in content and "{{" not in content:
            documents = read_documents(content, "")
            body = mapping(documents[0].value) if len(documents) == 1 else None
            if body and not documents[0].findings:
                yield ("data", key), body


def of_the_plugin(manifest: Manifest) -> Iterator[Finding]:
    """Require of a configuration of the device plugin keys where it reads them, and their values.

    NVIDIA/k8s-device-plugin, README, "Configuration" and "Shared Access to GPUs"; issues 1022 and
    1433: what stands elsewhere is ignored, and it stops at fewer than two replicas.
    """
    for path, body in embedded(manifest):
        sharing = mapping(body.get("sharing")) or {}
        flags = mapping(body.get("flags")) or {}
        if not ({*_HOW} & {*sharing, *body} or "migStrategy" in {*flags, *body}):
            continue
        if is_absent(body.get("version")):
            yield _of_plugin(manifest, path, "no version: the plugin stops", "add version: v1")
        elif text(body.get("version")) not in {"v1", None}:
            found = f"version {shown(body['version'])}, at which the plugin stops"
            yield _of_plugin(manifest, path, found, "write version: v1")
        yield from _misplaced(manifest, path, body, "")
        yield from _shared(manifest, path, sharing, text(flags.get("migStrategy")))


def _of_plugin(
    manifest: Manifest, path: Path, found: str, remedy: str, level: Level = Level.ERROR
) -> Finding:
    return manifest.find(Code.PLUGIN_CONFIG, path, found, remedy, level)


def _misplaced(
    manifest: Manifest, path: Path, body: Mapping[str, Json], above: str
) -> Iterator[Finding]:
    for key, value in body.items():
        places = _PLACES.get(key, (above,))
        where = f"{above}.{key}" if above else key
        if above not in places:
            found = f"{where} is read by nobody: it has no effect"
            yield _of_plugin(manifest, path, found, f"write it in {' or '.join(places)}")
        words = _WORDS.get(key, ())
        said = text(value)
        if words and said is not None and said not in words and "$" not in said:
            found = f"{where}: {shown(value)}, at which the plugin stops"
            yield _of_plugin(manifest, path, found, f"use {', '.join(words)}")
        if isinstance(value, dict):
            yield from _misplaced(manifest, path, value, where)


def _shared(
    manifest: Manifest, path: Path, sharing: Mapping[str, Json], strategy: str | None
) -> Iterator[Finding]:
    parts = {how: mapping(sharing.get(how)) or {} for how in _HOW}
    if all(parts.values()):
        found = "timeSlicing and mps exclude each other: the plugin takes mps alone"
        yield _of_plugin(manifest, path, found, "share by one of them")
    if parts["mps"] and strategy in {"mixed", "single"}:
        found = f"mps with migStrategy {strategy}: MPS does not share divided GPUs"
        yield _of_plugin(manifest, path, found, "write migStrategy: none, or share by timeSlicing")
    for how, part in parts.items():
        for value in items(part.get("resources")) or []:
            name = text((mapping(value) or {}).get("name"))
            if name and not name.startswith("nvidia.com/") and not is_placeholder(name):
                found = f"{how} of {shown(name)}, which is no resource of the plugin: it stops"
                yield _of_plugin(manifest, path, found, f"write {GPU}")
            replicas = number((mapping(value) or {}).get("replicas"))
            if replicas is not None and replicas < _FEWEST:
                found = f"{how} with replicas: {replicas}, at which the plugin stops"
                yield _of_plugin(manifest, path, found, "write 2 or more, or leave sharing out")


def mig_configs(manifest: Manifest) -> "Iterator[tuple[Path, dict[str, Json]]]":
    """Return the named ways to divide GPUs that a ConfigMap of the MIG manager has."""
    for path, body in embedded(manifest):
        named = mapping(body.get("mig-configs"))
        if named:
            yield path, named


def of_the_mig_manager(manifest: Manifest) -> Iterator[Finding]:
    """Require profiles of one GPU, and no more of them than it has room for.

    NVIDIA, MIG User Guide, "Supported MIG Profiles"; NVIDIA/mig-parted, README: the manager leaves
    the node as it was, labelled mig.config.state=failed.
    """
    for path, named in mig_configs(manifest):
        for name, value in named.items():
            for each in items(value) or []:
                body = mapping(each) or {}
                amounts = {
                    key: number(many)
                    for key, many in (mapping(body.get("mig-devices")) or {}).items()
                }
                wrong = _divided(body, amounts)
                if wrong is not None:
                    found, remedy = wrong
                    yield _of_plugin(manifest, path, f"{name}: {found}", remedy)


def _divided(
    body: Mapping[str, Json], amounts: "Mapping[str, int | None]"
) -> tuple[str, str] | None:
    odd = next((each for each in amounts if not _PROFILE.fullmatch(each)), None)
    if odd is not None:
        return f"{shown(odd)} is no profile", "write it like 1g.10gb"
    if amounts and body.get("mig-enabled") is False:
        return "profiles, and mig-enabled: false", "write mig-enabled: true"
    enabled = body.get("mig-enabled")
    if isinstance(enabled, str) and not is_placeholder(enabled):
        found = f"mig-enabled: {shown(enabled)} is a text, and the manager takes no file with it"
        return found, "write true or false without quotes"
    # A filter names its GPU by the number of its device, which may be one of those to come.
    return _of_no_gpu(amounts) if is_absent(body.get("device-filter")) else None


def _of_no_gpu(amounts: "Mapping[str, int | None]") -> tuple[str, str] | None:
    plain = {_plain(each) for each in amounts}
    known = {name for profiles in _GPUS.values() for name in profiles}
    others = any(plain <= {*listed.split()} for listed in _OTHERS)
    if not plain & known or None in amounts.values() or others:
        return None
    fitting = [gpu for gpu, profiles in _GPUS.items() if plain <= profiles.keys()]
    if not fitting:
        return f"no GPU has {' and '.join(sorted(plain))}", "use profiles of one GPU"
    for gpu in fitting:
        compute = sum(int(each[0]) * (many or 0) for each, many in amounts.items())
        memory = sum(_GPUS[gpu][_plain(each)] * (many or 0) for each, many in amounts.items())
        if compute <= _SEVENTHS and memory <= _EIGHTHS:
            return None
    listed = ", ".join(f"{many} of {each}" for each, many in amounts.items())
    return f"{listed} do not fit on one {fitting[-1]}", "ask for fewer, or for smaller ones"


def _plain(profile: str) -> str:
    match = _PROFILE.fullmatch(profile)
    return match["plain"] if match else profile


def of_the_type(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a slice that no GPU of the pod's instance types can be divided into.

    NVIDIA, MIG User Guide, "Supported GPUs" and "Supported MIG Profiles".
    """
    for pod in manifest.pods:
        types = instance_types(pod)
        if not types or any(each.gpu.name not in _CALLED for each in types):
            continue
        gpus = [_CALLED[each.gpu.name] for each in types]
        offered = {name for gpu in gpus if gpu is not None for name in _GPUS[gpu]}
        for container in pod.containers:
            for resource in container.amounts("limits"):
                name = resource.removeprefix(_SLICE).partition(".me")[0]
                if resource.startswith(_SLICE) and name not in offered:
                    found = f"no {types[0].gpu.name} of a {types[0].name} has the slice {name}"
                    there = f"there: {', '.join(sorted(offered))}"
                    remedy = there if offered else f"ask for {GPU}: it has no MIG"
                    path = (*container.path[1:], "resources", "limits", resource)
                    yield manifest.find(Code.SHARED_DEVICES, path, found, remedy)
