"""Rule over files that a program is told to read from a Secret or ConfigMap."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.values import is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Container, Manifest, Pod

_PATH = re.compile(r"/[A-Za-z0-9._/-]+")
_OPTION = re.compile(
    r"(?<![\w-])--(deepspeed|deepspeed[_-]config|ds[_-]config|config|config[_-]file|yaml[_-]cfg)"
    r"[ =]+[\"']?(?P<path>/[A-Za-z0-9._/-]+\.(json|ya?ml))(?=[\"'\s]|$)"
)
_SECRETS = ("/var/run/secrets/", "/run/secrets/")
# What Kubernetes, EKS and EKS Pod Identity mount by themselves.
_GIVEN = ("kubernetes.io", "eks.amazonaws.com", "pods.eks.amazonaws.com", "sts.amazonaws.com")
_PROGRAMS = (".py", ".sh")
_CLOSE = 0.75


def files(together: ManifestSet) -> Iterator[Found]:
    """Require of a file below the mounts of Secrets and ConfigMaps that it is there.

    Kubernetes, "Secrets" and "Configure a Pod to Use a ConfigMap": each key, or each of the items,
    becomes a file in the mount's directory, and nothing else does.
    """
    for manifest in together.objects:
        for pod in manifest.pods:
            for container in pod.containers:
                yield from _of_container(manifest, pod, container, together)


def _of_container(
    manifest: Manifest, pod: Pod, container: Container, together: ManifestSet
) -> Iterator[Found]:
    mounts = mounts_of(pod, container)
    if mounts is None:
        return
    kept = kept_files(manifest, mounts, together)
    for path, written in _paths(container):
        inside = [place for place, _ in mounts if is_in(written, place)]
        if not inside:
            secret = next((each for each in _SECRETS if written.startswith(each)), None)
            rest = written.removeprefix(secret or "")
            close = near(written, kept)
            if (secret and not rest.startswith(_GIVEN)) or close is not None:
                there = ", ".join(sorted(kept)) or "no Secret or ConfigMap"
                found = f"{shown(written)} is in no mount: the file is not there"
                remedy = f"mounted: {there}"
                name = written.rpartition("/")[2]
                if close is not None and name in (kept[close] or ()):
                    remedy = f"write {close}/{name}, where it is mounted"
                # Something that changes pods on their way in may mount it.
                level = Level.ERROR if kept else Level.WARNING
                finding = manifest.find(Code.FILE_NOT_MOUNTED, path, found, remedy, level)
                yield manifest, finding
            continue
        place = max(inside, key=len)
        names = kept.get(place.rstrip("/"))
        first = written[len(place.rstrip("/")) :].strip("/")
        if (
            names
            and first
            and first not in names
            and not any(is_in(f"/{first}", f"/{n}") or is_in(f"/{n}", f"/{first}") for n in names)
        ):
            there = ", ".join(sorted(names))
            if written.endswith(_PROGRAMS) and not any(each.endswith(_PROGRAMS) for each in names):
                found = f"{shown(written)} is not in this mount, which has {there}, and hides what "
                found += "the image has there"
                remedy = "mount it elsewhere, or a single file by subPath, or add the program"
                index = [each.rstrip("/") for each, _ in mounts].index(place.rstrip("/"))
                where: Path = (*container.path[1:], "volumeMounts", index, "mountPath")
                yield manifest, manifest.find(Code.FILE_NOT_MOUNTED, where, found, remedy)
                continue
            found = f"{shown(written)}, and the mount has {there}"
            remedy = "name one of these, or add the key"
            yield manifest, manifest.find(Code.FILE_NOT_MOUNTED, path, found, remedy)


def _is_file(written: str) -> bool:
    return "." in written.rpartition("/")[2] or written.endswith(("/token", "/password", "/key"))


def kept_files(
    manifest: Manifest, mounts: "list[tuple[str, dict[str, object]]]", together: ManifestSet
) -> "dict[str, set[str] | None]":
    """Return where Secrets and ConfigMaps are mounted, with their files where these are known."""
    return {place: names for place, source, names in _keyed(manifest, mounts, together) if source}


def near(written: str, kept: "dict[str, set[str] | None]") -> str | None:
    """Return the mount of a Secret or ConfigMap that is meant by a file in no mount."""
    folder, _, name = written.rpartition("/")
    close = get_close_matches(folder, kept, 1, _CLOSE) if kept and _is_file(written) else []
    # A mount below the folder leaves there what the image has.
    image = bool(close) and is_in(close[0], folder) and name not in (kept[close[0]] or ())
    return close[0] if close and not image else None


def _paths(container: Container) -> Iterator[tuple[Path, str]]:
    """Return absolute paths that stand alone in words, after a flag, or in variables."""
    for path, word in container.words:
        value = word.partition("=")[2] if word.startswith("-") else word
        # Some flags take several files, as those of the node problem detector.
        listed = value.split(",") if word.startswith("-") else [value]
        if all(_PATH.fullmatch(each) for each in listed):
            yield from ((path[1:], each) for each in listed)
        # A mount of these cannot be written, so what an option names in it has to be there.
        for match in _OPTION.finditer(word) if " " in word else ():
            yield path[1:], match["path"]
    for each in container.variables:
        value = each.value or ""
        if _PATH.fullmatch(value) and not is_placeholder(value):
            yield (*container.path[1:], "env", each.index), value


def mounts_of(pod: Pod, container: Container) -> "list[tuple[str, dict[str, object]]] | None":
    """Return where volumes are mounted, each with the volume; None where one is not known."""
    volumes, mounts = items(pod.spec.get("volumes")), items(container.body.get("volumeMounts"))
    if volumes is None or mounts is None:
        return None
    by_name = {text((mapping(each) or {}).get("name")): mapping(each) or {} for each in volumes}
    found: list[tuple[str, dict[str, object]]] = []
    for value in mounts:
        mount = mapping(value) or {}
        place = text(mount.get("mountPath"))
        if place is None or is_placeholder(place):
            return None
        volume = dict(by_name.get(text(mount.get("name")), {}))
        found.append((place, {} if "subPath" in mount or "subPathExpr" in mount else dict(volume)))
    # Two at one place are refused as such.
    twice = len({place.rstrip("/") for place, _ in found}) < len(found)
    return None if twice else found


def _keyed(
    manifest: Manifest, mounts: "list[tuple[str, dict[str, object]]]", together: ManifestSet
) -> "Iterator[tuple[str, bool, set[str] | None]]":
    """Return the mounts of Secrets and ConfigMaps, with their files where these are known."""
    for place, volume in mounts:
        for key, kind, name_key in (
            ("secret", "Secret", "secretName"),
            ("configMap", "ConfigMap", "name"),
        ):
            source = mapping(volume.get(key)) if key in volume else None  # type: ignore[arg-type]
            if source is None:
                continue
            listed = items(source.get("items")) or []
            paths = {text((mapping(each) or {}).get("path")) for each in listed}
            if paths and None not in paths:
                yield place.rstrip("/"), True, {each for each in paths if each}
                continue
            name = text(source.get(name_key))
            target = together.named(manifest, kind, name) if name else None
            body = target.body if target is not None else {}
            parts = [mapping(body.get(each)) or {} for each in ("data", "binaryData", "stringData")]
            yield place.rstrip("/"), True, {each for part in parts for each in part} or None


def is_in(path: str, place: str) -> bool:
    """Tell whether a path is a place, or lies below it."""
    return f"{path.rstrip('/')}/".startswith(f"{place.rstrip('/')}/")


def log_folders(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a TensorBoard that looks where nothing is mounted.

    TensorBoard, README, --logdir: it shows what lies below it, and an empty page otherwise.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            mounts = mounts_of(pod, container)
            if not mounts or "tensorboard" not in container.line.split(" --")[0]:
                continue
            places = [place for place, _ in mounts]
            words = container.words
            for index, (path, word) in enumerate(words):
                name, _, value = word.partition("=")
                if name == "--logdir" and not value and index + 1 < len(words):
                    value = words[index + 1][1]
                inside = any(is_in(value, each) or is_in(each, value) for each in places)
                if name == "--logdir" and _PATH.fullmatch(value) and not inside:
                    found = f"{shown(value)} is in no mount: TensorBoard shows an empty page"
                    remedy = f"mounted: {', '.join(sorted(places))}"
                    yield manifest.find(
                        Code.FILE_NOT_MOUNTED, path[1:], found, remedy, Level.WARNING
                    )
