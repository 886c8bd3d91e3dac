"""Rules over what training pods need of the node: shared memory, a place for files, ports."""

from collections.abc import Iterator

from megatron_eks.catalog.environment_folders import WRITTEN
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.quantity import quantity
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet, may_share
from megatron_eks.rules.values import is_absent, items, mapping, number, shown, text
from megatron_eks.rules.workloads import GPU, Container, Manifest

_SEVERAL = 2
_LEAST_SHARED, _MIB = 2**30, 2**20
_SHARED = "/dev/shm"  # noqa: S108 -- inside a container
_SCRATCH = "/tmp"  # noqa: S108 -- inside a container
_DNS = 53
_FILE_DRIVERS = frozenset({"fsx.csi.aws.com", "efs.csi.aws.com", "s3.csi.aws.com"})


def shared_memory(manifest: Manifest) -> Iterator[Finding]:
    """Warn of less shared memory than the ranks of several GPUs take.

    NCCL User Guide, "Troubleshooting", shared memory: each pair of ranks of a node takes some
    MiB, and each of PyTorch's loader workers its batches; a full one ends with a bus error.
    """
    for pod in manifest.pods if manifest.is_job else ():
        sizes = {}
        for value in items(pod.spec.get("volumes")) or []:
            volume = mapping(value) or {}
            empty = mapping(volume.get("emptyDir")) or {}
            if empty.get("medium") == "Memory":
                sizes[text(volume.get("name"))] = empty.get("sizeLimit")
        for container in pod.containers:
            gpus = container.amount(GPU)
            for index, value in enumerate(items(container.body.get("volumeMounts")) or []):
                mount = mapping(value) or {}
                written = sizes.get(text(mount.get("name")))
                size = quantity(written)
                place = (text(mount.get("mountPath")) or "").rstrip("/")
                # A few bytes are a slip of the unit, which is found as such.
                small = size is not None and _MIB <= size < _LEAST_SHARED
                if place == _SHARED and small and gpus and gpus >= _SEVERAL:
                    found = f"{shown(written)} of shared memory for {gpus} GPUs"
                    remedy = "use a sizeLimit of 8Gi or more, inside the memory limit"
                    path = (*container.path, "volumeMounts", index)
                    yield Finding(Code.SHARED_MEMORY, path, found, remedy, Level.WARNING)


def has_closed_root(container: Container) -> bool:
    """Tell whether a container may write to its mounts alone."""
    security = mapping(container.body.get("securityContext")) or {}
    return security.get("readOnlyRootFilesystem") is True


def scratch(manifest: Manifest) -> Iterator[Finding]:
    """Report training on a read-only root without a place for temporary files.

    torch/distributed/launcher and Python's tempfile: torchrun makes its log directory in /tmp, and
    "No usable temporary directory found" ends it; what variables name there cannot be made at all.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            if lacks_scratch(manifest, container):
                named = [
                    each.name
                    for each in container.variables
                    if each.name in WRITTEN and f"{each.value}/".startswith(f"{_SCRATCH}/")
                    if not any(f"{each.value}/".startswith(f"{at}/") for at in _places(container))
                ]
                found = "a read-only root and nothing at /tmp, where torchrun writes"
                if named:
                    found += f", and what {', '.join(named)} {'name' if named[1:] else 'names'}"
                path = (*container.path, "volumeMounts")
                level = Level.ERROR if named else Level.WARNING
                yield Finding(Code.REFUSED_IN_POD, path, found, "mount an emptyDir at /tmp", level)


def lacks_scratch(manifest: Manifest, container: Container) -> bool:
    """Tell whether a launcher's container can write nothing to /tmp, by what it mounts."""
    mounts = items(container.body.get("volumeMounts"))
    judged = manifest.is_job and container.has_launcher and not container.is_init
    if not judged or mounts is None or not has_closed_root(container):
        return False
    moved = any(each.name == "TMPDIR" for each in container.variables)
    return _SCRATCH not in _places(container) and not moved


def _places(container: Container) -> set[str]:
    mounts = items(container.body.get("volumeMounts")) or []
    paths = (text((mapping(each) or {}).get("mountPath")) or "" for each in mounts)
    return {each.rstrip("/") for each in paths} - {""}


def host_ports(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a rank that takes a port of its node.

    Kubernetes, "Configuration Best Practices": a second pod with the port finds no place there;
    ranks reach each other by their own addresses.
    """
    for pod in manifest.pods if manifest.is_job else ():
        for container in pod.containers:
            for index, value in enumerate(items(container.body.get("ports")) or []):
                port = number((mapping(value) or {}).get("hostPort"))
                if port and not pod.host_network:
                    found = f"port {port} of the node, which one pod alone can have"
                    path = (*container.path, "ports", index, "hostPort")
                    yield Finding(
                        Code.NEEDLESS_PRIVILEGE, path, found, "remove hostPort", Level.WARNING
                    )


def volume_modes(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a raw block device of a file system.

    Kubernetes, "Persistent Volumes", volumeMode; the drivers of FSx, EFS and S3 mount alone.
    """
    csi = mapping(manifest.spec.get("csi")) or {}
    driver = text(csi.get("driver"))
    blocks = manifest.spec.get("volumeMode") == "Block"
    if manifest.kind == "PersistentVolume" and driver in _FILE_DRIVERS and blocks:
        found = f"volumeMode Block, and {driver} has directories alone: no pod starts"
        yield manifest.find(Code.CLAIM_AND_VOLUME, ("spec", "volumeMode"), found, "use Filesystem")


def names_by_udp(together: ManifestSet) -> Iterator[Found]:
    """Warn of policies that admit DNS by TCP alone.

    Kubernetes, "DNS for Services and Pods": resolvers ask by UDP first; protocol is TCP where a
    policy's port names none.
    """
    policies = together.of("NetworkPolicy")
    for policy in policies:
        elsewhere = any(_has_udp(each) for each in policies if may_share(policy, each))
        for index, value in enumerate(items(policy.spec.get("egress")) or []):
            ports = [
                mapping(each) or {} for each in items((mapping(value) or {}).get("ports")) or []
            ]
            of_dns = [each for each in ports if number(each.get("port")) == _DNS]
            protocols = {text(each.get("protocol")) or "TCP" for each in of_dns}
            if of_dns and "UDP" not in protocols and not elsewhere:
                found = "port 53 by TCP alone, and names are asked for by UDP: none is found"
                path = ("spec", "egress", index, "ports")
                remedy = "add port 53 with protocol: UDP"
                finding = policy.find(Code.POLICY_PORT, path, found, remedy, Level.WARNING)
                yield policy, finding


def _has_udp(policy: Manifest) -> bool:
    for value in items(policy.spec.get("egress")) or []:
        rule = mapping(value) or {}
        ports = items(rule.get("ports"))
        if not ports and not items(rule.get("to")):
            return True
        for each in ports or []:
            body = mapping(each) or {}
            port = number(body.get("port"))
            if body.get("protocol") == "UDP" and (is_absent(body.get("port")) or port == _DNS):
                return True
    return False
