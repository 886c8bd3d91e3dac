"""Guards of files: mounts, volumes and claims, and who may write to the shared directories."""

import re
from collections.abc import Iterator
from itertools import pairwise

from megatron_eks.catalog.environment_folders import WRITTEN
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.guards.manifests import Manifests, Object, Pod, manifest_guard
from megatron_eks.guards.pods import JOBS
from megatron_eks.guards.values import Value, report

_CLAIM, _FITS = "persistentVolumeClaim", Code.CLAIM_AND_VOLUME
_FSX, _EFS = "fsx.csi.aws.com", "efs.csi.aws.com"
_HANDLE = re.compile(r"(fs-(?:[0-9a-f]{8,17}|preview))(::?.+)?")
# FSx API, LustreFileSystemConfiguration, MountName; a folder may follow (its driver, issue 247).
_MOUNT_NAME = r"([a-z0-9]{8}|preview)(/[^/]+)*"
_OF_THE_IMAGE = re.compile(r"/(opt|usr|bin|sbin|lib|lib64|proc|sys|dev|home|root|workspace)(/|$)")
_PATH = re.compile(r"/[\w.-]+(/[\w.%-]+)*/?")
_WRITES = re.compile(r"--.*(save|log|output|heartbeat|tensorboard|destination|directory|target).*")
_OWNERS = r"(?P<runAsUser>\d+):(?P<runAsGroup>\d+) 0?[27]?77[0-7]( (take|make|pass)( /\S+)+)+"
_TMP = "/tmp"  # noqa: S108 -- in the pod
_SHARED: tuple[tuple[str, tuple[Json, ...], str], ...] = (
    ("accessModes", (["ReadWriteMany"],), "ranks on several nodes cannot mount it"),
    ("volumeMode", ("Filesystem", None), "it has files, and no blocks"),
)
_VOLUME = (
    *_SHARED,
    ("csi driver", (_FSX, _EFS), "no such driver mounts it"),
    ("claimRef kind", ("PersistentVolumeClaim",), "another claim may take the volume first"),
)
_BOUND = (
    *_SHARED,
    ("storageClassName", ("",), "another class makes another volume, or none"),
    ("volumeName", (), "the claim takes any volume that fits, or waits"),
)


@manifest_guard
def mounts(manifests: Manifests) -> Iterator[Finding]:
    """Mount each volume, at a path of its own (Kubernetes, "Volumes")."""
    for pod in manifests.pods:
        named = [each["name"].text for each in pod.spec["volumes"]]
        used = {e["name"].text for each in pod.containers for e in each["volumeMounts"]}
        yield from twice(Code.DUPLICATE_IN_POD, [each["name"] for each in pod.spec["volumes"]])
        yield from twice(Code.DUPLICATE_IN_POD, [each["name"] for each in pod.containers])
        for volume in pod.spec["volumes"]:
            title, sources = volume["name"].text, len([e for _, e in volume.items() if e]) - 1
            found = f"volume {title!r} with {sources} sources: the pod is refused"
            row = (sources != 1, volume, found, "give it one, such as an emptyDir or a claim")
            yield from report(Code.UNKNOWN_VOLUME, row)
            row = (title not in used, volume, f"nothing mounts {title!r}", "mount or remove it")
            yield from report(Code.UNKNOWN_VOLUME, row, level=Level.WARNING)
        for listed in (each["volumeMounts"] for each in pod.containers):
            yield from twice(Code.DUPLICATE_IN_POD, [each["mountPath"] for each in listed])
            for mount in listed:
                name, path = mount["name"], mount["mountPath"]
                found = f"no volume {name.raw!r}: the pod is refused"
                absolute, remedy = path.text.startswith("/"), f"use {' or '.join(named) or 'one'}"
                yield from report(
                    Code.UNKNOWN_VOLUME,
                    (name.text not in named, name, found, remedy),
                    (not absolute, path, f"{path.raw!r} is no absolute path", "begin with a slash"),
                )


def twice(code: Code, listed: list[Value]) -> Iterator[Finding]:
    """Report what may stand once in a list, and stands there again."""
    texts = [each.text.rstrip("/") for each in listed]
    for index, each in enumerate(listed):
        found = f"a second {each.raw!r}: it is refused, or only one of the two counts"
        yield from report(code, (texts[index] in texts[:index], each, found, "keep one"))


@manifest_guard
def paths(manifests: Manifests) -> Iterator[Finding]:
    """Keep what programs read and write on a mounted claim (Kubernetes, "Volumes")."""
    for pod in (each for each in manifests.pods if each.owner.kind in JOBS):
        listed = pod.main["volumeMounts"]
        at = {each["mountPath"].text.rstrip("/"): each for each in listed}
        scratch = {each["name"].text for each in pod.spec["volumes"] if each["emptyDir"]}
        needs = [(listed, _TMP, False, True)] if pod.main["name"].text == "pytorch" else []
        needs += [(place, place.text, kept, written) for place, kept, written in _paths(pod.main)]
        for place, path, kept, written in needs:
            over = [mount for mount in at if f"{path}/".startswith(f"{mount}/")]
            mount = at[max(over, key=len)] if over else listed["none"]
            only, lost = mount["readOnly"].raw is True, kept and mount["name"].text in scratch
            found = f"nothing is mounted at {path}: it is not found, or goes with the pod"
            yield from report(
                Code.LOST_OUTPUT,
                (not over, place, found, f"use a path below {' or '.join(sorted(at))}"),
                (written and only, mount["readOnly"], f"{path} is written to", "remove readOnly"),
            )
            found = f"{path} is in an emptyDir: it goes with the pod, and no other rank sees it"
            yield from report(Code.CHECKPOINTS_LOST, (lost, place, found, "use the shared claim"))


@manifest_guard
def volumes(manifests: Manifests) -> Iterator[Finding]:
    """Describe a shared file system as its driver reads it (aws-fsx-csi-driver, examples)."""
    listed, claims = manifests.of("PersistentVolume"), manifests.of("PersistentVolumeClaim")
    yield from twice(_FITS, [each["spec"]["csi"]["volumeHandle"] for each in listed])
    for volume in listed:
        spec, handle, kept = volume["spec"], volume["spec"]["csi"]["volumeHandle"], ("Retain", None)
        why = "the files are deleted with the claim"
        yield from spec["persistentVolumeReclaimPolicy"].must_be(Code.RECLAIMED, *kept, why=why)
        yield from spec.must_hold(_FITS, _VOLUME)
        name, namespace = spec["claimRef"]["name"].text, spec["claimRef"]["namespace"].text
        claim = manifests.named("PersistentVolumeClaim", name, namespace)
        place = claim["spec"]["volumeName"] if claim else spec["claimRef"]
        lost = claims and place.raw != volume.name
        found = f"{volume.name} and its claim do not name each other: the claim stays Pending"
        remedy = f"name {volume.name!r}" if claim else "name the claim that is to use the volume"
        right, wrong = _HANDLE.fullmatch(handle.text), f"{handle.raw!r} is no file system"
        yield from report(
            _FITS,
            (not right, handle, wrong, "write fs-... as AWS shows it"),
            (lost, place, found, remedy),
        )
        if right and spec["csi"]["driver"].text == _FSX:
            yield from _lustre(volume, right[1])


@manifest_guard
def claims(manifests: Manifests) -> Iterator[Finding]:
    """Bind a claim to the one volume that is made for it ("Persistent Volumes")."""
    known = [each.name for each in manifests.of("PersistentVolume")]
    for claim in manifests.of("PersistentVolumeClaim"):
        yield from claim["spec"].must_hold(_FITS, _BOUND)
        name, size = claim["spec"]["volumeName"], claim["spec"]["resources"]["requests"]["storage"]
        bound = manifests.named("PersistentVolume", name.text)
        has = bound["spec"]["capacity"]["storage"] if bound else size
        small = size.quantity and size.quantity <= (has.quantity or 0)
        found, remedy = f"no volume {name.raw!r}: it stays Pending", f"use {' or '.join(known)}"
        yield from report(_FITS, (name and known and not bound, name, found, remedy))
        found = f"it asks for {size.raw}, and its volume has {has.raw}"
        row = (size.quantity != has.quantity, size, found, f"set it to {has.raw!r}")
        yield from report(_FITS, row, level=Level.WARNING if small else Level.ERROR)


@manifest_guard
def directory_owners(manifests: Manifests) -> Iterator[Finding]:
    """Make the shared directories for the user of the jobs (chmod(1), chown(1))."""
    code = Code.DIRECTORY_OWNER
    for job in (e for e in manifests.of("Job") if e.name.startswith("shared-directories")):
        args, user = job.pods[0].main["args"], _of(job.pods[0], "runAsUser")
        yield from user.must_be(code, 0, why="only root may give a directory to somebody")
        words = re.fullmatch(_OWNERS, " ".join(args.texts))
        found = "these are no USER:GROUP, a mode that lets the group write, and rules with paths"
        row = (not words, args, found, "write such as 10001:10001 0770 take /shared make ...")
        yield from report(code, row)
        for pod in (e for e in manifests.pods if words and e.owner.kind in JOBS):
            claims = {each["name"].text for each in pod.spec["volumes"] if each[_CLAIM]}
            at = [e["mountPath"].text for e in pod.main["volumeMounts"] if e["name"].text in claims]
            for key in ("runAsUser", "runAsGroup") if at else ():
                value, wanted = _of(pod, key), words[key] if words else ""
                found = f"the shared directories belong to {wanted}: permission denied"
                wrong = value and str(value.raw) not in {"0", wanted}
                yield from report(code, (wrong, value, found, f"set it to {wanted}"))
            for place, kept, _ in _paths(pod.main):
                top = "/".join(place.text.split("/")[: at[0].count("/") + 2]) if at else ""
                inside = any(top.startswith(f"{each}/") for each in at)
                # Of a file system that exists the Job mounts the whole, and the pods one folder.
                ends = {each[each.rfind("/") :] for each in args.texts}
                made = not inside or top[top.rfind("/") :] in ends or not ends.isdisjoint(at)
                found = f"{job.name} does not make {top}, where only root may write"
                row = (kept and not made, place, found, "use a directory that it makes")
                yield from report(code, row, level=Level.WARNING)


def _of(pod: Pod, key: str) -> Value:
    return pod.main["securityContext"][key] or pod.spec["securityContext"][key]


def _paths(container: Value) -> Iterator[tuple[Value, bool, bool]]:
    """Return paths that a program is given: whether they are kept, and surely written to."""
    words = list(container["args"])
    for before, word in pairwise([*words[:1], *words]):
        if _PATH.fullmatch(word.text) and not _OF_THE_IMAGE.match(word.text):
            yield word, True, _WRITES.fullmatch(before.text) is not None
    for each in container["env"]:
        value = each["value"]
        if each["name"].text in WRITTEN and _PATH.fullmatch(value.text):
            yield value, "DEBUG_INFO" in each["name"].text, True


def _lustre(volume: Object, file_system: str) -> Iterator[Finding]:
    attributes, options = volume["spec"]["csi"]["volumeAttributes"], volume["spec"]["mountOptions"]
    address, name = attributes["dnsname"], attributes["mountname"]
    here = re.match(rf"{file_system}\.fsx\.[\w-]+\.\w", address.text)
    found = f"dnsname is {address.raw!r}, and the volume is {file_system}: the mount fails"
    wrong = "only SCRATCH_1 is called fsx" if name.text == "fsx" else "no file system has it"
    mount = f"mountname is {name.raw!r}: {wrong}, and pods hang in ContainerCreating"
    remedy = "write the MountName that `aws fsx describe-file-systems` shows"
    locks = "no mount option flock: file locks fail, and with them caches and data sets"
    yield from report(
        _FITS,
        (not here, address, found, f"set it to {file_system}.fsx.REGION.amazonaws.com"),
        (not re.fullmatch(_MOUNT_NAME, name.text), name, mount, remedy),
        ("flock" not in options.texts, options, locks, "add flock"),
    )
