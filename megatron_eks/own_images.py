"""Images of the user's (`images.own`): what of a folder goes to the build, and its hash."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from megatron_eks.build_context import content_tag, copy, tag_of
from megatron_eks.code_folders import Folder, named, odd, real
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import TOKEN, Finding, warning
from megatron_eks.config.errors import Path as Place
from megatron_eks.config.images import OwnImage
from megatron_eks.plan.cluster.images import (
    CONTEXT,
    OWN_ARGUMENTS,
    OWN_PROGRAM,
    PROGRAM,
    REPOSITORIES,
    build_arguments,
)
from megatron_eks.plan.jobs.code_files import MOST_FILES, Pattern, own_patterns, patterns

RENDERED = ("cdk.out", "dist", "outputs.json")
"""What is written beside a cluster file. No image takes it: its hash would change each time."""

_TAKEN = {*REPOSITORIES, *REPOSITORIES.values()}
_LARGEST_TEXT = 2**20


@dataclass(frozen=True)
class Images:
    """The images of a cluster file; what the user's are built of is read once for all of this.

    `root` holds what ours are made of; the user's are below the cluster file's `folder`.
    """

    config: ClusterConfig
    folder: Path
    root: Path

    @property
    def findings(self) -> Sequence[Finding]:
        """What is wrong with images of the user's, and with the folders they are built of."""
        return self._own[0]

    @property
    def tags(self) -> dict[str, str]:
        """The content hash of each image's build context, by name."""
        return {**self._ours, **self._own[1]}

    @cached_property
    def _ours(self) -> dict[str, str]:
        return {
            name: content_tag(self.root, name, build_arguments(self.config, name))
            for name in REPOSITORIES
        }

    @cached_property
    def _own(self) -> tuple[list[Finding], dict[str, str]]:
        findings: list[Finding] = []
        tags: dict[str, str] = {}
        for index, image in enumerate(self.config.images.own):
            path: Place = ("images", "own", index)
            if image.name in _TAKEN | tags.keys():
                whose = "this project's" if image.name in _TAKEN else "another one's"
                found = f"{image.name} is {whose} name"
                findings.append(_wrong((*path, "name"), found, "give it another one"))
            base = self._ours[image.base] if image.base else ""
            arguments = json.dumps(OWN_ARGUMENTS, sort_keys=True)
            digest = partial(tag_of, (image.name, base, image.dockerfile, image.test, arguments))
            # Of what cannot be built, it is no more than a name for other commands to go on with.
            tags[image.name] = digest({})
            place = real(self.folder / image.context)
            try:
                for each in _judge(image, path, place, self.folder):
                    if isinstance(each, Finding):
                        findings.append(each)
                    else:
                        files = _files(each, self.root)
                        tags[image.name] = digest(files, partial(_look, findings, path))
            except OSError as problem:
                unread = f"{problem.filename} cannot be read: {problem.strerror}"
                remedy = "make it readable, or name it in .dockerignore"
                findings.append(_wrong((*path, "context"), unread, remedy))
        return findings, tags


def _wrong(path: Place, found: str, remedy: str) -> Finding:
    return Finding(Code.OWN_BUILD, path, found, remedy)


def stage_own(image: OwnImage, folder: Path, root: Path, target: Path) -> None:
    """Copy what the build of an image gets into a folder of its own."""
    read = read_context(folder / image.context, image.dockerfile, folder)
    copy(_files(read, root), target)


def _files(read: Folder, root: Path) -> dict[str, Path]:
    base = root if (root / PROGRAM).is_file() else root / "megatron_eks"
    return {
        **{name: base / name for name in (PROGRAM, OWN_PROGRAM)},
        **{f"{CONTEXT}/{name}": path for name, path in sorted(read.files.items())},
    }


def read_context(root: Path, dockerfile: str, cluster: Path) -> Folder:
    """Look through a build's folder: secrets and junk stay here, and what .dockerignore names.

    Its patterns come last, so `!NAME` there takes a file along. `cluster` is the cluster file's
    folder: where it is the build's too, what is rendered into it stays here.
    """
    root = real(root)
    ignores = (f"{dockerfile}.dockerignore", ".dockerignore")
    always = [dockerfile, *(each for each in ignores if (root / each).is_file())]
    own = [each for each in own_patterns() if each.why != "data"]
    own += patterns([f"/{each}" for each in RENDERED], "rendered") if root == real(cluster) else ()
    asked = [*_dockerignore(root / always[1])] if always[1:] else []
    # Docker takes files along whose folder is left out.
    deep = any(not each.leaves_out for each in asked)
    read = Folder()
    for place, folders, files in os.walk(root):
        here = Path(place)
        for name in sorted(folders):
            within = (here / name).relative_to(root).as_posix()
            decided = _decision(within, [*own, *asked], is_folder=True)
            if decided and decided.leaves_out and (decided in own or not deep):
                read.left[f"{within}/"] = decided.why
                folders.remove(name)
        # Links to folders are listed as folders, and not walked into.
        links = [name for name in folders if (here / name).is_symlink()]
        for path in (here / name for name in sorted([*files, *links])):
            within = path.relative_to(root).as_posix()
            decided = _decision(within, [*own, *asked], is_folder=False)
            leaves_out = decided is not None and decided.leaves_out and within not in always
            why = decided.why if decided and leaves_out else odd(path, root)
            if why is None:
                read.files[within] = path
            else:
                read.left[within] = why
        if len(read.files) > MOST_FILES:
            break
    return read


def _dockerignore(file: Path) -> Iterator[Pattern]:
    """Read a .dockerignore: each name begins at the folder of the build."""
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        text = line.strip()
        if text and not text.startswith("#"):
            mark, name = "!" * text.startswith("!"), text.removeprefix("!").strip()
            yield from patterns([f"{mark}/{name.removeprefix('./').strip('/')}"], ".dockerignore")


def _decision(name: str, every: Sequence[Pattern], *, is_folder: bool) -> Pattern | None:
    """Return the last pattern that knows a file, a folder, or one of the folders around it."""
    parts = name.split("/")
    around = ["/".join(parts[:count]) for count in range(1, len(parts))]
    return next(
        (
            each
            for each in reversed(every)
            if each.knows(name, is_folder=is_folder)
            or any(each.knows(above, is_folder=True) for above in around)
        ),
        None,
    )


def _judge(image: OwnImage, path: Place, place: Path, cluster: Path) -> Iterator[Finding | Folder]:
    """Yield what is wrong with a folder, and itself to be read further."""
    if not place.is_relative_to(real(cluster)) or not place.is_dir():
        found = f"no such folder beside the cluster file: {cluster / image.context}"
        yield _wrong((*path, "context"), found, "correct the path, or put the folder there")
        return
    read = read_context(place, image.dockerfile, cluster)
    if image.dockerfile not in read.files:
        found = f"no {image.dockerfile} in {image.context}"
        yield _wrong((*path, "dockerfile"), found, "correct the name; it is relative to context")
        return
    if len(read.files) > MOST_FILES:
        found = f"{image.context} holds more than {MOST_FILES} files"
        remedy = "name a smaller folder, or leave files out by a .dockerignore"
        yield _wrong((*path, "context"), found, remedy)
        return
    yield read
    if missed := named(read):
        remedy = "name them in .dockerignore, or include them: '!NAME' there"
        yield warning(Code.CODE_LEFT_OUT, (*path, "context"), missed, remedy)


def _look(findings: list[Finding], path: Place, name: str, content: bytes) -> None:
    """Look for a token in a file of a build that may be text."""
    own = name.removeprefix(f"{CONTEXT}/")
    if own == name or len(content) > _LARGEST_TEXT:
        return
    text = content.decode(errors="replace")
    if token := TOKEN.search(text):
        line = text.count("\n", 0, token.start()) + 1
        found = f"{own}:{line} holds a token, and everyone with the image could read it"
        remedy = "revoke it, and give jobs a new one by runtime.secret_env"
        findings.append(Finding(Code.TOKEN_IN_FILE, (*path, "context"), found, remedy))
