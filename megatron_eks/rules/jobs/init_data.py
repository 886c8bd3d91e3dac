"""Rules over what init containers fetch: that the containers after them find it there."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.rules.jobs.mounted_paths import PATH, inside, kept, mounts, paths
from megatron_eks.rules.jobs.output_places import mounted, outputs_of, place_of
from megatron_eks.rules.jobs.shell_scripts import commands_of, scripts_of
from megatron_eks.rules.jobs.training_flags import split_words
from megatron_eks.rules.values import shown
from megatron_eks.rules.workloads import Container, Manifest, Pod

# Directories that an image may well have itself.
_OF_IMAGES = re.compile(
    r"/(app|bin|code|dev|etc|home|lib|megatron|opt|proc|root|src|srv|sys|tmp|usr|var|workspace)\b",
    re.IGNORECASE,
)
_FETCHES = re.compile(
    r"(\S*/)?(aws\s+s3\s+(sync|cp)\s+(--\S+\s+)*\"?s3://\S+\s+|(huggingface-cli|hf)\s+download\s"
    r"|git\s+clone\s+(--\S+\s+)*\S+://\S+\s+)"
)
_WRITES = re.compile(
    rf"{_FETCHES.pattern}|\b(s5cmd|wget|curl|rsync|rclone|gsutil|tar|unzip|cp|mv|mkdir)\b"
)
# A program that makes the directory, or finds it in another way.
_MAKES = re.compile(r"\b(ln|mkdir|cp|mv|rsync|tar|unzip|s5cmd|rclone|mount|git|wget|curl)\b|\bs3\b")
_OPTION = re.compile(r"--[\w.-]+=(?P<value>/.*)")
_PLAIN = re.compile(
    r"\s*(set\s|echo\b|mkdir\s|export\s|ls\b|du\b|df\b|pip3?\s+install|chmod\s|date\b)"
)


_JOINS = re.compile(r"&&|\|\|?|;")
_SHM = "/dev/shm"  # noqa: S108 -- inside a container


def read_elsewhere(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a path that an init container fills on a volume, where its reader has not mounted it.

    Kubernetes, "Volumes": each container of a pod says for itself where it mounts what; a path of
    the init container is another one, or nothing, in the others.
    """
    for pod in manifest.pods:
        filled = list(_filled(pod))
        for container in pod.containers if filled else ():
            if container.is_init or _MAKES.search(container.line):
                continue
            saved = {each.value.rstrip("/") for each in outputs_of(container)}
            for path, value in _options(container):
                at = next((each for each in filled if inside(value, each[0])), None)
                place = place_of(value, container, pod)
                if at is None or place is None or place.mount or value in saved:
                    continue
                _, where, volume, first = at
                here = next((p for p, name in mounts(container) if name == volume), None)
                found = f"{shown(value)}, and {shown(first)} has {volume} at {where}: "
                found += f"here it is at {here}" if here else "here it is not mounted"
                remedy = f"mount {volume} at {where} here too"
                remedy += f", or read {value.replace(where, here, 1)}" if here else ""
                yield Finding(Code.FILE_NOT_MOUNTED, path, found, remedy)
                break


def _filled(pod: Pod) -> Iterator[tuple[str, str, str, str]]:
    """Return paths that init containers write on volumes, with mount, volume and container."""
    stay = kept(pod)
    for container in pod.containers:
        if not container.is_init or not _WRITES.search(container.line):
            continue
        own = [each for each in mounts(container) if each[1] in stay]
        for _, word in paths(container):
            around = [each for each in own if inside(word, each[0])]
            if around and not _OF_IMAGES.match(word):
                where, volume = max(around, key=lambda each: len(each[0]))
                yield word.rstrip("/"), where, volume, container.name or "the init container"


def unkept(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a download that an init container, and nobody else, has in its own file system.

    Kubernetes, "Init Containers": it ends before the others start, and its file system with it;
    what is to stay goes to a volume that both mount.
    """
    for pod in manifest.pods if manifest.is_job else ():
        others = {place for each in pod.containers for place, _ in mounts(each)} - {_SHM}
        # A pod without a volume may get its volumes from elsewhere.
        for container in pod.containers if others else ():
            if not container.is_init or not _only_fetches(container):
                continue
            for path, word in _targets(container):
                place = place_of(word, container, pod)
                # One that another container mounts there is told so by a rule of its own.
                known = any(inside(word, each) for each in others)
                if place is None or place.mount or known or _OF_IMAGES.match(word):
                    continue
                found = f"{shown(word)}, where nothing is mounted: it is gone when the others start"
                there = sorted({mounted(each) for each in pod.containers if not each.is_init})
                remedy = "mount a volume there, here and in the container that reads it"
                remedy += f", which has mounts at {there[0]}" if len(there) == 1 else ""
                yield Finding(Code.LOST_OUTPUT, path, found, remedy)


def _only_fetches(container: Container) -> bool:
    """Tell a container that does nothing with what it fetches."""
    if container.body.get("restartPolicy") == "Always":
        return False
    scripts = list(scripts_of(container))
    if not scripts:
        return _FETCHES.match(f"{container.line} ") is not None
    lines = [line for _, script in scripts for line in commands_of(script)]
    commands = [each for line in lines for each in _JOINS.split(line) if each.strip()]
    fetched = [each for each in commands if _FETCHES.match(f"{each.strip()} ")]
    rest = [each for each in commands if each not in fetched]
    return bool(fetched) and all(_PLAIN.match(each) for each in rest)


def _targets(container: Container) -> Iterator[tuple[Path, str]]:
    """Return where downloads go, as far as the command says so in so many words."""
    for path, line in _lines(container):
        words = split_words(line)
        for index, (word, after) in enumerate(zip(words, [*words[1:], ""], strict=True)):
            flag, _, value = word.partition("=")
            if flag == "--local-dir":
                target = value or after
            elif index >= 1 and re.match(r"\"?(s3|https)://", words[index - 1]):
                target = word
            else:
                continue
            if PATH.fullmatch(target):
                yield path, target.rstrip("/")


def _lines(container: Container) -> Iterator[tuple[Path, str]]:
    scripts = list(scripts_of(container))
    if scripts:
        yield from ((path, each) for path, text_ in scripts for each in commands_of(text_))
    elif container.words:
        yield container.words[-1][0], container.line


def _options(container: Container) -> Iterator[tuple[Path, str]]:
    """Return paths that options have; a word by itself may be a name in an image."""
    before = ""
    for path, line in container.words:
        for word in split_words(line):
            match = _OPTION.fullmatch(word)
            value = match["value"] if match else word if before.startswith("--") else ""
            if PATH.fullmatch(value) and not _OF_IMAGES.match(value):
                yield path, value.rstrip("/")
            before = "" if "=" in word else word
