"""Rules over exporters of metrics: where they listen, and what they read of the node."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.objects.mounted_files import kept_files, mounts_of, near
from megatron_eks.rules.values import is_absent, items, mapping, number, shown, text
from megatron_eks.rules.workloads import Container, Manifest, Pod

_DCGM = re.compile(r"(^|/)dcgm-exporter([:@]|$)")
_LISTENS = re.compile(r"--web\.listen-address=[^:]*:(?P<port>[0-9]{1,5})")
_READS = re.compile(r"--path\.(procfs|rootfs|sysfs)=(?P<path>/.+)")
_SCRAPED = "prometheus.io/port"
_OWN = "/etc/dcgm-exporter"
# NVIDIA/dcgm-exporter, etc/: what its image brings.
_LISTS = ("1.x-compatibility-metrics.csv", "dcp-metrics-included.csv", "default-counters.csv")
_PROFILING = "dcp-metrics-included.csv"
_RIGHT = "SYS_ADMIN"
# What Linux has itself in every container.
_EVERYWHERE = ("/", "/proc", "/sys")


def addresses(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a port that is scraped, or listed, and on which an exporter does not listen.

    prometheus/exporter-toolkit, --web.listen-address; Prometheus, examples of
    kubernetes_sd_configs, prometheus.io/port: with a wrong one no target answers.
    """
    for pod in manifest.pods:
        running = [each for each in pod.containers if not each.is_init]
        listed = {port: each for each in running for port in _listed(each)}
        for container in running:
            said = [_LISTENS.fullmatch(word) for _, word in container.words]
            opened = [int(match["port"]) for match in said if match]
            own = _listed(container)
            if opened and own and not set(opened) & set(own):
                found = f"listens on {opened[-1]}, and lists {', '.join(map(str, own))}"
                path = (*container.path[1:], "ports")
                remedy = f"write containerPort: {opened[-1]}"
                yield manifest.find(Code.MONITOR, path, found, remedy, Level.WARNING)
        scraped = number(pod.annotations.get(_SCRAPED))
        every = all(_listed(each) for each in running)
        if scraped is not None and listed and every and scraped not in listed:
            ports = ", ".join(map(str, listed))
            found = f"port {scraped} of pods that list {ports}: nobody answers there"
            path = (*pod.path[1:-1], "metadata", "annotations", _SCRAPED)
            remedy = f'write "{next(iter(listed))}", or list the port in the container'
            yield manifest.find(Code.MONITOR, path, found, remedy, Level.WARNING)


def files_of_the_node(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a directory of the node that an exporter is told to read, and that is not mounted.

    prometheus/node_exporter, README, "Docker": --path.procfs, --path.sysfs and --path.rootfs name
    mounts of the node's own.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            mounts = _mounts(container)
            for path, word in container.words if mounts is not None else ():
                match = _READS.fullmatch(word)
                inside = match["path"].rstrip("/") if match else ""
                if inside and inside not in _EVERYWHERE and not _under(inside, mounts or []):
                    found = f"{shown(inside)}, where nothing is mounted: it has no metrics of that"
                    remedy = f"mount the node's directory at {inside}"
                    yield manifest.find(Code.MONITOR, path[1:], found, remedy, Level.WARNING)


def lists_of_fields(together: ManifestSet) -> Iterator[Found]:
    """Warn of a list that NVIDIA's exporter does not have, and of one that it may not read.

    NVIDIA/dcgm-exporter, etc/ and docker/Dockerfile: the image holds three lists, and the fields of
    profiling need SYS_ADMIN, and root besides.
    """
    for manifest in together.objects:
        for pod in manifest.pods:
            for container in pod.containers:
                if _DCGM.search(text(container.body.get("image")) or ""):
                    for finding in _lists(manifest, pod, container, together):
                        yield manifest, finding


def _lists(
    manifest: Manifest, pod: Pod, container: Container, together: ManifestSet
) -> Iterator[Finding]:
    mounts, sources = _mounts(container), mounts_of(pod, container)
    if mounts is None:
        return
    kept = kept_files(manifest, sources or [], together)
    for path, word in container.words:
        file = word.rpartition("=")[2]
        folder, _, name = file.rpartition("/")
        if folder != _OWN or not name.endswith(".csv"):
            continue
        if name not in _LISTS and not _under(file, mounts):
            # One that is mounted beside it is told of as such.
            if near(file, kept) is None:
                found = f"{shown(file)}, which the image does not have: the exporter stops"
                remedy = f"mount it there, or use {_OWN}/{_LISTS[-1]}"
                yield manifest.find(Code.MONITOR, path[1:], found, remedy, Level.WARNING)
        elif name == _PROFILING and not _may_profile(container):
            found = f"fields of profiling without {_RIGHT}: they are missing"
            place = (*container.path[1:], "securityContext", "capabilities")
            remedy = f"add {_RIGHT} to capabilities.add"
            yield manifest.find(Code.MONITOR, place, found, remedy, Level.WARNING)
        elif name == _PROFILING and (user := pod.user_of(container)):
            found = f"fields of profiling as user {user}: they are missing"
            place = (*container.path[1:], "securityContext", "runAsUser")
            yield manifest.find(Code.MONITOR, place, found, "write 0", Level.WARNING)


def _may_profile(container: Container) -> bool:
    context = mapping(container.body.get("securityContext"))
    if context is None or context.get("privileged") is True:
        return True
    added = items((mapping(context.get("capabilities")) or {}).get("add")) or []
    return any(text(each) in ("ALL", _RIGHT) for each in added)


def _listed(container: Container) -> list[int]:
    ports = [mapping(each) or {} for each in items(container.body.get("ports")) or []]
    found = [number(each.get("containerPort")) for each in ports]
    return [each for each in found if each is not None]


def _mounts(container: Container) -> list[str] | None:
    """Return where a container has mounts; None where one of them is not known."""
    mounts = items(container.body.get("volumeMounts"))
    if mounts is None or not is_absent(container.body.get("envFrom")):
        return None
    paths = [text((mapping(each) or {}).get("mountPath")) for each in mounts]
    return None if None in paths else [(each or "").rstrip("/") for each in paths]


def _under(path: str, mounts: list[str]) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in mounts)
