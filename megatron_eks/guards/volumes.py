"""Guards of files: mounts, volumes and claims, and who may write to the shared directories."""

import re
from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise

from megatron_eks.catalog.environment import WRITTEN
from megatron_eks.catalog.pins import POD_UID, TEAM_LABEL
from megatron_eks.guards.codes import Rule
from megatron_eks.guards.manifests import Manifests, Pod, manifest_guard
from megatron_eks.guards.values import Found, Row, Value, report

_CLAIM, _FITS, _DIRECTORY = "persistentVolumeClaim", Rule.CLAIM_AND_VOLUME, Rule.DIRECTORY_OWNER
_FSX, _EFS = "fsx.csi.aws.com", "efs.csi.aws.com"
_HANDLE = re.compile(r"(fs-(?:[0-9a-f]{8,17}|preview[a-z0-9-]*))(::?.+)?")
# FSx API, LustreFileSystemConfiguration, MountName; a folder may follow (its driver, issue 247).
_MOUNT_NAME = r"([a-z0-9]{8}|preview)(/[^/]+)*"
_OF_THE_IMAGE = re.compile(r"/(opt|usr|bin|sbin|lib|lib64|proc|sys|dev|home|root|workspace)(/|$)")
_PATH = re.compile(r"/[\w.-]+(/[\w.%-]+)*/?")
_WRITES = re.compile(r"--.*(save|log|output|heartbeat|tensorboard|destination|directory|target).*")
_OWNER = r"(\d+):(\d+) 0?[127]?77[0-5](?= )"
_OWNERS = rf"(?: ?{_OWNER}(?: (?:take|make|pass|hold)(?: /\S+)+)+)+"
_OWNED = f"write {POD_UID}:{POD_UID} 0770 take ..."
_USER = ("runAsUser", "runAsGroup")
_ROOT, _RUNS = "only root can change the owner of a directory", ["sh", "-euc"]
_TMP = "/tmp"  # noqa: S108 -- in the pod
_SHARED: tuple[Row, ...] = (
    ("accessModes", (["ReadWriteMany"],), "ranks on several nodes cannot mount it"),
    ("volumeMode", ("Filesystem", None), "it has files, and no blocks"),
)
_VOLUME = (
    *_SHARED,
    ("claimRef kind", ("PersistentVolumeClaim",), "another claim may take the volume first"),
)
_BOUND = (
    *_SHARED,
    ("storageClassName", ("",), "another class makes another volume, or none"),
    ("volumeName", (), "the claim takes any volume that fits, or waits"),
)


@manifest_guard
def mounts(manifests: Manifests) -> Found:
    """Mount each volume, at a path of its own (Kubernetes, "Volumes")."""
    code = Rule.UNKNOWN_VOLUME
    for pod in manifests.pods:
        volumes, listed = pod.spec["volumes"], [e["volumeMounts"] for e in pod.containers]
        names = [each["name"].text for each in volumes]
        for volume in volumes:
            sources = sum(bool(each) for _, each in volume.items()) - 1
            found = f"a volume with {sources} sources: the pod is refused"
            yield from report(code, sources != 1, volume, found, "give it one")
        parts = [[e["mountPath"] for e in each] for each in listed]
        for once in ([e["name"] for e in volumes], [e["name"] for e in pod.containers], *parts):
            yield from twice(Rule.DUPLICATE_IN_POD, once)
        for name in (each["name"] for mounts in listed for each in mounts):
            found, lost = f"no volume {name.raw!r}: the pod is refused", name.text not in names
            yield from report(code, lost, name, found, f"use one of {names}")
        yield from _files(pod) if pod.of_job else ()


def _files(pod: Pod) -> Found:
    listed = pod.main["volumeMounts"]
    scratch, claims = (mounted(pod, pod.main, e) for e in ("emptyDir", _CLAIM))
    at = {each["mountPath"].text.rstrip("/"): each for each in listed}
    needs = [(listed, _TMP, False, True)] if pod.main["name"].text == "pytorch" else []
    needs += [(place, place.text, kept, written) for place, kept, written in _paths(pod.main)]
    for place, path, kept, written in needs:
        over = max([e for e in at if f"{path}/".startswith(f"{e}/")], key=len, default="")
        only, lost = at.get(over, listed)["readOnly"], kept and over in scratch
        found = f"nothing is mounted at {path}: it is not found, or is lost with the pod"
        below, read_only = " or ".join(claims if kept else scratch), written and only.raw
        remedy = f"mount a volume there{f', or use a path below {below}' if below else ''}"
        yield from report(Rule.LOST_OUTPUT, not over, place, found, remedy)
        found = f"{path} is written to"
        yield from report(Rule.LOST_OUTPUT, read_only, only, found, "remove readOnly")
        found = f"{path} is in an emptyDir: it is lost with the pod, and no other rank sees it"
        yield from report(Rule.CHECKPOINTS_LOST, lost, place, found, "use the shared claim")


def twice(code: StrEnum, listed: list[Value]) -> Found:
    """Report what may stand once in a list, and stands there again."""
    texts = [each.text.rstrip("/") for each in listed]
    for index, each in enumerate(listed) if len({*texts}) < len(texts) else ():
        found = f"a second {each.raw!r}: it is refused, or only one of the two counts"
        yield from report(code, texts[index] in texts[:index], each, found, "keep one")


def mounted(pod: Pod, container: Value, source: str) -> list[str]:
    """Return where a container mounts volumes of a source, such as `emptyDir`."""
    names = {each["name"].text for each in pod.spec["volumes"] if each[source]}
    return [e["mountPath"].text for e in container["volumeMounts"] if e["name"].text in names]


@manifest_guard
def volumes(manifests: Manifests) -> Found:
    """Describe a shared file system as its driver reads it, for one claim (aws-fsx-csi-driver)."""
    listed, claims = manifests.of("PersistentVolume"), manifests.of("PersistentVolumeClaim")
    yield from twice(_FITS, [each["spec"]["csi"]["volumeHandle"] for each in listed])
    for volume in listed:
        spec, handle = volume["spec"], volume["spec"]["csi"]["volumeHandle"]
        kept, why = spec["persistentVolumeReclaimPolicy"], "the files are deleted with the claim"
        yield from kept.must_be(Rule.RECLAIMED, "Retain", None, why=why)
        yield from spec.must_hold(_FITS, *_VOLUME)
        name, namespace = (spec["claimRef"][key].text for key in ("name", "namespace"))
        claim = manifests.named("PersistentVolumeClaim", name, namespace)
        place = claim["spec"]["volumeName"] if claim else spec["claimRef"]
        found = f"{volume.name} and claim {name} do not name each other: it stays Pending"
        other, remedy = claims and place.raw != volume.name, f"volumeName: {volume.name}"
        remedy = f"write {remedy} in the claim, unless the volume's claimRef is wrong"
        yield from report(_FITS, other, place, found, remedy)
        right, found = _HANDLE.fullmatch(handle.text), f"{handle.raw!r} is no file system id"
        yield from report(_FITS, not right, handle, found, "write fs-... as AWS shows it")
        path = spec["csi"]["volumeAttributes"]["mountname"]
        drivers, space = (_FSX, _EFS)[: 1 + (not path)], manifests.named("Namespace", namespace)
        yield from spec.must_hold(_FITS, ("csi driver", drivers, "it does not mount such a volume"))
        team = space.labels[TEAM_LABEL].text if space else ""
        other = "/teams/" in path.text and not path.text.endswith(f"/teams/{team}")
        found = f"{path.text} is another team's folder: permission denied, or a leak"
        yield from report(_FITS, other and team, path, found, f"end it in /teams/{team}")
        if right and spec["csi"]["driver"].text == _FSX:
            yield from _lustre(spec, right[1])
    for claim in claims:
        yield from claim["spec"].must_hold(_FITS, *_BOUND)
        size, named = claim["spec"]["resources"]["requests"]["storage"], claim["spec"]["volumeName"]
        bound = manifests.named("PersistentVolume", named.text)
        has = bound["spec"]["capacity"]["storage"] if bound else size
        found, lost = f"no volume {named.raw!r}: it stays Pending", named and not bound and listed
        yield from report(_FITS, lost, named, found, f"use {' or '.join(e.name for e in listed)}")
        fits, other = (size.quantity or 0) <= (has.quantity or 0), size.raw != has.raw
        found = f"{size.raw}, and its volume has {has.raw}: a claim stays Pending for a smaller one"
        yield from report(_FITS, other, size, found, "write one size in both", warns=fits)


def _lustre(spec: Value, file_system: str) -> Found:
    attributes, options = spec["csi"]["volumeAttributes"], spec["mountOptions"]
    address, name = attributes["dnsname"], attributes["mountname"]
    here = re.match(rf"{file_system}\.fsx\.[\w-]+\.\w", address.text)
    found = f"dnsname is {address.raw!r}, and the volume is {file_system}: the mount fails"
    remedy = f"set it to {file_system}.fsx.REGION.amazonaws.com"
    yield from report(_FITS, not here, address, found, remedy)
    wrong = "only SCRATCH_1 is called fsx" if name.text == "fsx" else "no file system has it"
    found = f"mountname is {name.raw!r}: {wrong}, and pods hang in ContainerCreating"
    bad, remedy = not re.fullmatch(_MOUNT_NAME, name.text), "write what AWS shows as MountName"
    yield from report(_FITS, bad, name, found, remedy)
    found = "no mount option flock: file locks fail, and with them caches and data sets"
    yield from report(_FITS, "flock" not in options.texts, options, found, "add flock")


@manifest_guard
def directory_owners(manifests: Manifests) -> Found:
    """Make the shared directories for the user of the jobs (chmod(1), chown(1))."""
    for job in (e for e in manifests.of("Job") if e.name.startswith("shared-directories")):
        main, args = job.pods[0].main, job.pods[0].main["args"]
        yield from job.pods[0].setting(main, "runAsUser").must_be(_DIRECTORY, 0, why=_ROOT)
        added = main["securityContext"]["capabilities"]["add"]
        row = ("CHOWN" not in added.texts, added, _ROOT, "add CHOWN")
        yield from report(_DIRECTORY, *row)
        words = re.fullmatch(_OWNERS, text := " ".join(args.texts))
        owners = {user: (user, group) for user, group in re.findall(_OWNER, text)}
        right = words and main["command"].texts[:2] == _RUNS
        found = "no sh -euc with USER:GROUP, a mode that lets the group write, and rules with paths"
        yield from report(_DIRECTORY, not right, args, found, _OWNED)
        pods = [e for e in manifests.pods if words and e.of_job and mounted(e, e.main, _CLAIM)]
        spaces = {each.owner.namespace for each in pods}
        users = {e: str(own) for e in sorted(spaces) if (own := manifests.user(e)) is not None}
        for user in dict.fromkeys(users.values()):
            found = f"no directory of {user}, as whom jobs run: permission denied"
            remedy = f"write {user}:{user} 0770 take ..."
            yield from report(_DIRECTORY, user not in owners, args, found, remedy)
        for pod in (e for e in pods if users.get(e.owner.namespace) in owners):
            for key, wanted in zip(_USER, owners[users[pod.owner.namespace]], strict=True):
                value = pod.setting(pod.main, key)
                found = f"the shared directories belong to {wanted}: permission denied"
                wrong = value and str(value.raw) not in {"0", wanted}
                yield from report(_DIRECTORY, wrong, value, found, f"set it to {wanted}")


def _paths(container: Value) -> Iterator[tuple[Value, bool, bool]]:
    """Return paths that a program is given: whether they are kept, and surely written to."""
    words = list(container["args"])
    for before, word in pairwise([*words[:1], *words]):
        if _PATH.fullmatch(word.text) and not _OF_THE_IMAGE.match(word.text):
            yield word, True, _WRITES.fullmatch(before.text) is not None
    for each in container["env"]:
        name, value = each["name"].text, each["value"]
        if (name in WRITTEN or name.endswith("CA_BUNDLE")) and _PATH.fullmatch(value.text):
            yield value, "DEBUG_INFO" in name, name in WRITTEN
