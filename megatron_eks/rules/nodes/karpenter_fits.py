"""Rules over a NodePool and the EC2NodeClass that it names: what only both together show."""

import re
from collections.abc import Callable, Iterator

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.quantity import quantity
from megatron_eks.rules.hardware import TYPE_LABELS
from megatron_eks.rules.nodes.karpenter_ends import is_for_training
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.objects.named_pools import pools_of
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, text
from megatron_eks.rules.workloads import Manifest

_CLASS = "EC2NodeClass"
_CAPACITY, _ARCHITECTURE = "karpenter.sh/capacity-type", "kubernetes.io/arch"
# The families of the catalogue all have processors of Intel or AMD.
_ARM = "arm64"
_GPUS = "instance-gpu-count"
_AMOUNTS = (_GPUS, "instance-cpu")
_MEETS: "dict[str, Callable[[int, list[int]], bool]]" = {
    "In": lambda amount, given: amount in given,
    "Gt": lambda amount, given: amount > given[0],
    "Gte": lambda amount, given: amount >= given[0],
    "Lt": lambda amount, given: amount < given[0],
    "Lte": lambda amount, given: amount <= given[0],
}
# What a disk with images and layers is called, by the family of the AMI.
_DISKS = {"AL2": "/dev/xvda", "AL2023": "/dev/xvda", "Bottlerocket": "/dev/xvdb"}
FAMILIES = {name.lower(): name for name in _DISKS}
_ROOTS = frozenset({"/dev/sda1", "/dev/sda", "/dev/xvda", "/dev/nvme0n1"})
# The disk of EKS's own AMIs of Amazon Linux: a volume is never smaller than its snapshot.
_OF_AMI = 20 * 2**30
_AMAZON_LINUX = frozenset({"AL2", "AL2023"})
# Karpenter, pkg/providers/amifamily: the disk that it maps by itself.
_DEFAULT_DISK = 20 * 2**30
_ROOM_FOR_IMAGES = 80 * 2**30
_BOOTSTRAP = re.compile(r"/etc/eks/bootstrap\.sh")
_WITHOUT = re.compile(r"al2023@|bottlerocket@")


def reserved(together: ManifestSet) -> Iterator[Found]:
    """Refuse a pool for reserved capacity alone whose class selects no reservation, warn of others.

    Karpenter, "NodeClasses", spec.capacityReservationSelectorTerms: only what it selects is ever
    launched as `reserved`.
    """
    for pool, used in with_classes(together):
        asked = _values(pool, _CAPACITY)
        if "reserved" in asked and not items(used.spec.get("capacityReservationSelectorTerms")):
            alone = asked == ["reserved"]
            found = f"reserved, and {used.title} selects no reservation: "
            found += "no node is started" if alone else "nodes are bought beside it"
            path: Path = ("spec", "template", "spec", "requirements")
            remedy = "write capacityReservationSelectorTerms in the class"
            # Of several classes of one name another may be the one that is there.
            known = sum(each.name == used.name for each in together.of(_CLASS)) == 1
            level = Level.ERROR if alone and known else Level.WARNING
            yield pool, pool.find(Code.KARPENTER, path, found, remedy, level)


def unused(together: ManifestSet) -> Iterator[Found]:
    """Warn of a class that selects reservations for pools none of which takes reserved capacity.

    Karpenter, "Utilizing On-Demand Capacity Reservations and Capacity Blocks": the pool has to
    allow the capacity type `reserved`; what it launches otherwise is in no reservation.
    """
    pairs = list(with_classes(together))
    for pool, used in pairs:
        if not items(used.spec.get("capacityReservationSelectorTerms")):
            continue
        others = [_values(each, _CAPACITY) for each, other in pairs if other is used]
        asked = _values(pool, _CAPACITY)
        if all(each and "reserved" not in each for each in others):
            found = (
                f"{' and '.join(asked)} alone, and {used.title} selects reservations: they stay "
            )
            found += "empty and are paid, and the nodes are bought beside them"
            path: Path = ("spec", "template", "spec", "requirements")
            remedy = f"write values: [reserved] for {_CAPACITY}"
            yield pool, pool.find(Code.KARPENTER, path, found, remedy, Level.WARNING)


def addresses(together: ManifestSet) -> Iterator[Found]:
    """Refuse public addresses for nodes with several network cards.

    EC2 API, RunInstances, AssociatePublicIpAddress: for one interface only, so a node with EFA on
    each card is not launched.
    """
    for pool, used in with_classes(together):
        types = [INSTANCES[name] for name in _values(pool, TYPE_LABELS[0]) if name in INSTANCES]
        several = [each for each in types if each.efa_interfaces and each.network_cards > 1]
        if several and used.spec.get("associatePublicIPAddress") is True:
            found = f"public addresses, and {several[0].name} of {pool.title} has several "
            found += "interfaces with EFA: EC2 refuses to launch it"
            path: Path = ("spec", "associatePublicIPAddress")
            yield used, used.find(Code.KARPENTER, path, found, "remove it, and use a NAT gateway")


def with_classes(together: ManifestSet) -> Iterator[tuple[Manifest, Manifest]]:
    """Return each pool with the class that it names."""
    for pool in together.of("NodePool"):
        template = mapping(pool.spec.get("template")) or {}
        reference = mapping((mapping(template.get("spec")) or {}).get("nodeClassRef")) or {}
        for used in together.of(_CLASS):
            if reference.get("kind") == _CLASS and reference.get("name") == used.name:
                yield pool, used


def _values(pool: Manifest, key: str) -> list[str]:
    """Return what a pool requires a label to be one of; none where it says it otherwise."""
    template = mapping(pool.spec.get("template")) or {}
    spec = mapping(template.get("spec")) or {}
    for value in items(spec.get("requirements")) or []:
        body = mapping(value) or {}
        if body.get("key") == key and body.get("operator") == "In":
            return [str(each) for each in items(body.get("values")) or []]
    return []


def architectures(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a pool of types that have other processors than it asks for.

    Karpenter, "NodePools", requirements: all have to be met by one type; EC2, instance types.
    """
    if (manifest.group, manifest.kind) != ("karpenter.sh", "NodePool"):
        return
    types = _values(manifest, TYPE_LABELS[0])
    known = bool(types) and all(name in INSTANCES for name in types)
    if known and _values(manifest, _ARCHITECTURE) == [_ARM]:
        found = f"{_ARM}, and {types[0]} has x86 processors: no node is started"
        path: Path = ("spec", "template", "spec", "requirements")
        yield manifest.find(Code.KARPENTER, path, found, "write amd64")


def amounts(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a number of GPUs or processors that none of the types of a pool has.

    Karpenter, "NodePools", requirements, and "Scheduling", well-known labels: as `architectures`.
    """
    if (manifest.group, manifest.kind) != ("karpenter.sh", "NodePool"):
        return
    types = _values(manifest, TYPE_LABELS[0])
    known = [INSTANCES[name] for name in types if name in INSTANCES]
    template = mapping(manifest.spec.get("template")) or {}
    required = items((mapping(template.get("spec")) or {}).get("requirements")) or []
    for index, value in enumerate(required if known and len(known) == len(types) else []):
        body = mapping(value) or {}
        name = (text(body.get("key")) or "").partition("/")[2]
        given = [number(each) for each in items(body.get("values")) or []]
        meets = _MEETS.get(text(body.get("operator")) or "")
        if name not in _AMOUNTS or meets is None or not given or None in given:
            continue
        have = [each.gpus if name == _GPUS else each.vcpus for each in known]
        if not any(meets(amount, [each or 0 for each in given]) for amount in have):
            said = ", ".join(str(each) for each in given)
            found = f"{name} {body.get('operator')} {said}, and {types[0]} has {have[0]}: no node "
            found += "is started"
            path: Path = ("spec", "template", "spec", "requirements", index)
            yield manifest.find(Code.KARPENTER, path, found, "remove it: the types say it already")


def start_scripts(manifest: Manifest) -> Iterator[Finding]:
    """Refuse the start script of Amazon Linux 2 in nodes that have none.

    EKS User Guide, "Upgrade from Amazon Linux 2 to Amazon Linux 2023": nodeadm reads a NodeConfig
    instead of /etc/eks/bootstrap.sh; Karpenter, "NodeClasses", spec.userData.
    """
    if (manifest.group, manifest.kind) != ("karpenter.k8s.aws", _CLASS):
        return
    terms = [mapping(each) or {} for each in items(manifest.spec.get("amiSelectorTerms")) or []]
    aliases = [text(each.get("alias")) or "" for each in terms]
    newer = text(manifest.spec.get("amiFamily")) in {"AL2023", "Bottlerocket"} or any(
        _WITHOUT.match(alias) for alias in aliases
    )
    custom = manifest.spec.get("amiFamily") == "Custom"
    written = text(manifest.spec.get("userData")) or ""
    if newer and not custom and _BOOTSTRAP.search(written):
        found = "/etc/eks/bootstrap.sh, which these nodes do not have: they never join"
        remedy = "remove it: Karpenter writes what the nodes need, or add a NodeConfig"
        yield manifest.find(Code.KARPENTER, ("spec", "userData"), found, remedy)


def disks(manifest: Manifest) -> Iterator[Finding]:
    """Require of mapped disks the one that images lie on, by the name that the AMI has for it.

    Karpenter, "NodeClasses", spec.blockDeviceMappings: a mapping takes the place of its defaults,
    /dev/xvda for Amazon Linux, and /dev/xvda with /dev/xvdb for Bottlerocket; the disk that it
    leaves out stays as small as in the AMI (karpenter-provider-aws issue 8747).
    """
    if (manifest.group, manifest.kind) != ("karpenter.k8s.aws", _CLASS):
        return
    mapped = items(manifest.spec.get("blockDeviceMappings")) or []
    size, family = image_disk(manifest), _family(manifest)
    # One without its unit is refused before.
    known = size is not None and size >= 2**20
    if mapped and known and size is not None and size < _OF_AMI and family in _AMAZON_LINUX:
        # karpenter-provider-aws issue 7928: InvalidBlockDeviceMapping.
        found = f"{_DISKS[family or '']} of {size / 2**30:g} GiB, and the AMI has 20: EC2 refuses "
        path: Path = ("spec", "blockDeviceMappings")
        remedy = "write volumeSize: 200Gi, for images of frameworks"
        yield manifest.find(Code.KARPENTER, path, f"{found}every launch", remedy)
    devices = [text((mapping(each) or {}).get("deviceName")) or "$" for each in mapped]
    wanted = _DISKS.get(_family(manifest) or "")
    if not devices or wanted is None or wanted in devices or any(map(is_placeholder, devices)):
        return
    # A disk for data may be meant beside one that stays as it is.
    meant = not _ROOTS.isdisjoint(devices)
    raid = manifest.spec.get("instanceStorePolicy") == "RAID0"
    found = f"{', '.join(devices)}, and {_family(manifest)} has its images on {wanted}, which "
    found += "stays as small as in the AMI"
    if raid:
        found = f"{', '.join(devices)}, and {_family(manifest)} has {wanted}: one more disk, "
        found += "which nothing mounts"
    path = ("spec", "blockDeviceMappings")
    level = Level.ERROR if meant and not raid else Level.WARNING
    yield manifest.find(Code.KARPENTER, path, found, f"name it {wanted}", level)


def image_room(together: ManifestSet) -> Iterator[Found]:
    """Warn of nodes for training whose disk has no room for the images.

    Karpenter, "NodeClasses", spec.blockDeviceMappings: without any it is 20 GiB, of which the AMI
    takes a good part; spec.instanceStorePolicy RAID0 puts images on the instance's own disks.
    """
    warned: list[Manifest] = []
    for manifest, used in with_classes(together):
        pool = next(pools_of(manifest), None)
        if pool is None or not is_for_training(pool) or _has_other_room(used):
            continue
        if any(each is used for each in warned):
            continue
        size = image_disk(used)
        refused = not is_absent(used.spec.get("blockDeviceMappings")) and (size or 0) < _OF_AMI
        if size is not None and size < _ROOM_FOR_IMAGES and not refused:
            warned.append(used)
            given = not is_absent(used.spec.get("blockDeviceMappings"))
            found = f"{size // 2**30} GiB{'' if given else ', the default,'} for the images of "
            found += f"{pool.title}: those for training and their layers take more, and pods are "
            found += "evicted for the full disk"
            remedy = "write volumeSize: 200Gi or more, or instanceStorePolicy: RAID0"
            path: Path = ("spec", "blockDeviceMappings")
            yield used, used.find(Code.KARPENTER, path, found, remedy, Level.WARNING)


def _has_other_room(used: Manifest) -> bool:
    """Tell whether images may lie elsewhere: on the instance store, or as a script has it."""
    return not is_absent(used.spec.get("instanceStorePolicy")) or not is_absent(
        used.spec.get("userData")
    )


def image_disk(used: Manifest) -> int | None:
    """Return the bytes of the disk with the images; None where nobody can know."""
    wanted = _DISKS.get(_family(used) or "")
    mapped = used.spec.get("blockDeviceMappings")
    if wanted is None or is_absent(mapped):
        return None if wanted is None else _DEFAULT_DISK
    for value in items(mapped) or []:
        body = mapping(value) or {}
        size = quantity((mapping(body.get("ebs")) or {}).get("volumeSize"))
        if body.get("deviceName") == wanted and size is not None:
            return int(size)
    return None


def _family(manifest: Manifest) -> str | None:
    """Return the family of a class's AMI; None where amiFamily and the alias do not agree."""
    given = text(manifest.spec.get("amiFamily"))
    meant = FAMILIES.get(alias_of(manifest)[0].partition("@")[0])
    if given is None or meant is None or given == "Custom":
        return given or meant
    return given if given == meant else None


def alias_of(manifest: Manifest) -> tuple[str, int]:
    """Return the alias of a class's AMIs and its place; empty where it has none."""
    terms = [mapping(each) or {} for each in items(manifest.spec.get("amiSelectorTerms")) or []]
    aliases = ((text(each.get("alias")), index) for index, each in enumerate(terms))
    return next(((said, index) for said, index in aliases if said), ("", 0))
