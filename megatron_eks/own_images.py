"""Images of the user's (`images.own`): what of a folder goes to the build, and its hash."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from megatron_eks.build_context import content_tag, copy, tag_of
from megatron_eks.code_folders import Folder, named, odd, real
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import TOKEN, Finding, warning
from megatron_eks.config.errors import Path as Place
from megatron_eks.config.images import OwnImage
from megatron_eks.plan.cluster.builds import CONTEXT, OWN_ARGUMENTS, OWN_PROGRAM, PROGRAM
from megatron_eks.plan.cluster.images import REPOSITORIES, build_arguments
from megatron_eks.plan.jobs.code_files import MOST_FILES, Pattern, own_patterns, patterns

_TAKEN = {*REPOSITORIES, *REPOSITORIES.values()}
# Dockerfile reference, "FROM": options may stand before the image.
_FROM_BASE = re.compile(
    r"^\s*FROM\s+(--\S+\s+)*[\"']?\$\{?BASE_IMAGE\b", re.MULTILINE | re.IGNORECASE
)
_LARGEST_TEXT = 2**20
# Of the cluster file's own folder: with them, each rendering would change the hash that it renders.
_RENDERED = ("/cdk.out/", "/dist/", "/outputs.json")


def image_tags(config: ClusterConfig, folder: Path, root: Path) -> dict[str, str]:
    """Return the content hash of each image's build context, by name.

    `root` holds what ours are made of; the user's are below the cluster file's `folder`.
    """
    ours: dict[str, str] = {
        name: content_tag(root, name, build_arguments(config, name)) for name in REPOSITORIES
    }
    return ours | {
        image.name: tag_of(
            (
                *(image.name, ours[image.base] if image.base else "", image.dockerfile, image.test),
                json.dumps(OWN_ARGUMENTS, sort_keys=True),
            ),
            _files(image, folder, root),
        )
        for image in config.images.own
    }


def stage_own(image: OwnImage, folder: Path, root: Path, target: Path) -> None:
    """Copy what the build of an image gets into a folder of its own."""
    copy(_files(image, folder, root), target)


def _files(image: OwnImage, folder: Path, root: Path) -> dict[str, Path]:
    base = root if (root / PROGRAM).is_file() else root / "megatron_eks"
    read = read_context(folder / image.context, image.dockerfile, folder)
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
    own += patterns(_RENDERED, "rendered") if root == real(cluster) else ()
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
        for path in (here / name for name in sorted([*files, *_links(here, folders)])):
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


def _links(here: Path, folders: Sequence[str]) -> list[str]:
    """Return links to folders, which are listed as folders and not walked into."""
    return [name for name in folders if (here / name).is_symlink()]


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


def check_own_images(config: ClusterConfig, folder: Path) -> Iterator[Finding]:
    """Yield what is wrong with images of the user's, and with the folders they are built of."""
    seen: set[str] = set()
    for index, image in enumerate(config.images.own):
        path: Place = ("images", "own", index)
        if image.name in _TAKEN | seen:
            whose = "this project's" if image.name in _TAKEN else "another one's"
            found = f"{image.name} is {whose} name"
            yield Finding(Code.OWN_BUILD, (*path, "name"), found, "give it another one")
        seen.add(image.name)
        place = real(folder / image.context)
        if not place.is_relative_to(real(folder)) or not place.is_dir():
            found = f"no such folder beside the cluster file: {folder / image.context}"
            remedy = "correct the path, or put the folder there"
            yield Finding(Code.OWN_BUILD, (*path, "context"), found, remedy)
            continue
        try:
            yield from _judge(image, path, place, folder)
        except OSError as problem:
            unread = f"{problem.filename} cannot be read: {problem.strerror}"
            remedy = "make it readable, or name it in .dockerignore"
            yield Finding(Code.OWN_BUILD, (*path, "context"), unread, remedy)


def _judge(image: OwnImage, path: Place, place: Path, cluster: Path) -> Iterator[Finding]:
    read = read_context(place, image.dockerfile, cluster)
    if image.dockerfile not in read.files:
        found = f"no {image.dockerfile} in {image.context}"
        remedy = "correct the name; it is relative to context"
        yield Finding(Code.OWN_BUILD, (*path, "dockerfile"), found, remedy)
        return
    if len(read.files) > MOST_FILES:
        found = f"{image.context} holds more than {MOST_FILES} files"
        remedy = "name a smaller folder, or leave files out by a .dockerignore"
        yield Finding(Code.OWN_BUILD, (*path, "context"), found, remedy)
        return
    if image.base and not _FROM_BASE.search(
        read.files[image.dockerfile].read_text("utf-8", "replace")
    ):
        found = f"{image.dockerfile} does not start from it: no FROM names BASE_IMAGE"
        remedy = "begin with `ARG BASE_IMAGE` and `FROM ${BASE_IMAGE}`, or remove base"
        yield Finding(Code.OWN_BUILD, (*path, "base"), found, remedy)
    for name, file in read.files.items():
        if file.stat().st_size > _LARGEST_TEXT:
            continue
        text = file.read_text("utf-8", "replace")
        if token := TOKEN.search(text):
            line = text.count("\n", 0, token.start()) + 1
            found = f"{name}:{line} holds a token, and everyone with the image could read it"
            remedy = "revoke it, and give jobs a new one by runtime.secret_env"
            yield Finding(Code.TOKEN_IN_FILE, (*path, "context"), found, remedy)
    if missed := named(read):
        remedy = "name them in .dockerignore, or include them: '!NAME' there"
        yield warning(Code.CODE_LEFT_OUT, (*path, "context"), missed, remedy)
