"""The container images: where they are kept, their bases and build arguments."""

import re
from collections.abc import Collection, Iterator, Mapping

from megatron_eks.catalog.gpus import FIRST_CUDA, is_older
from megatron_eks.catalog.images import Image
from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.catalog.pins import BUILD_ARGUMENTS
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, choices, warning
from megatron_eks.config.images import GithubSource
from megatron_eks.plan.cluster.builds import OWN_ARGUMENTS, ImagePlan
from megatron_eks.plan.cluster.zones import check_partition

REPOSITORIES: dict[Image, str] = {
    "megatron": "megatron-training",
    "fsdp": "fsdp",
}


def plan_images(config: ClusterConfig, image_tags: Mapping[str, str]) -> tuple[ImagePlan, ...]:
    """Plan the images of a configuration that has passed the checks, ours first."""
    ours = tuple(
        ImagePlan(
            name=name,
            repository=f"{config.images.prefix}{repository}",
            tag=image_tags[name],
            build_args=build_arguments(config, name),
            test_level=getattr(config.images, name).test_level,
            tag_strategy=getattr(config.images, name).tag_strategy,
        )
        for name, repository in REPOSITORIES.items()
    )
    own = (
        ImagePlan(
            name=image.name,
            repository=f"{config.images.prefix}{image.name}",
            tag=image_tags[image.name],
            build_args=OWN_ARGUMENTS,
            own=image,
        )
        for image in config.images.own
    )
    return (*ours, *own)


def build_arguments(config: ClusterConfig, image: Image) -> dict[str, str]:
    """Return the pins that an image is made of, or what the configuration has in their place."""
    return {**BUILD_ARGUMENTS[image], **getattr(config.images, image).build_args}


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Arguments stand in the template and in the history of the image (Docker, "Build variables").
_SECRET_NAME = re.compile(
    r"(.*_)?(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|PRIVATE_KEY|SECRET_KEY|CREDENTIALS?)"
)
_SECRET_VALUE = re.compile(
    r"hf_[A-Za-z0-9]{30,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|AKIA[A-Z0-9]{16}"
    r"|nvapi-[\w-]{20,}|-----BEGIN"
)

# What the Dockerfile compares as a whole: sha256sum's line, and `git rev-parse HEAD`.
_FORMS = {
    "EFA_INSTALLER_SHA256": (
        re.compile("[0-9a-f]{64}"),
        "the archive's SHA-256",
        "all 64 hexadecimal digits, in lowercase",
    ),
    "MEGATRON_LM_COMMIT": (
        re.compile("[0-9a-f]{40}"),
        "the tag's commit",
        "all 40 hexadecimal digits, as `git rev-parse` prints them",
    ),
}

# The Dockerfile compares what it gets by the one with the other.
_PAIRS = (
    ("EFA_INSTALLER_VERSION", "EFA_INSTALLER_SHA256"),
    ("MEGATRON_LM_TAG", "MEGATRON_LM_COMMIT"),
)


def check_images(config: ClusterConfig) -> Iterator[Finding]:
    """Yield arguments that no build takes, and those that nobody should see."""
    for image in ("megatron", "fsdp"):
        for name, value in getattr(config.images, image).build_args.items():
            path: Path = ("images", image, "build_args", name)
            if not _NAME.fullmatch(name):
                found = f"{name!r} is no name of an argument"
                remedy = "use letters, digits and '_', not starting with a digit"
                yield Finding(Code.BUILD_ARGUMENT, path, found, remedy)
            elif _SECRET_NAME.fullmatch(name.upper()) or _SECRET_VALUE.search(value):
                found = f"{name} looks like a secret, and everybody with the image can read it"
                remedy = "remove and replace it; jobs take tokens from a Secret: token_secret"
                yield Finding(Code.BUILD_ARGUMENT, path, found, remedy)
            elif name == "BASE_IMAGE":
                yield from check_base(path, value, config)
            elif (form := _FORMS.get(name)) and not form[0].fullmatch(value):
                found = f"the build compares it with {form[1]}, and this is none"
                yield Finding(Code.BUILD_ARGUMENT, path, found, f"write {form[2]}")
    given, pinned = config.images.megatron.build_args, BUILD_ARGUMENTS["megatron"]
    for name, other in (*_PAIRS, *(pair[::-1] for pair in _PAIRS)):
        if given.get(name, pinned[name]) != pinned[name] and other not in given:
            found = f"the build compares it with {other}, which is that of {pinned[name]}"
            path = ("images", "megatron", "build_args", name)
            yield Finding(Code.BUILD_ARGUMENT, path, found, f"set {other} too")


def check_arguments(
    config: ClusterConfig, known: Mapping[Image, Collection[str]]
) -> Iterator[Finding]:
    """Yield arguments that the Dockerfiles, by image, do not declare: Docker ignores them."""
    for image, names in known.items():
        for name in getattr(config.images, image).build_args:
            if name not in names and _NAME.fullmatch(name):
                path: Path = ("images", image, "build_args", name)
                found = f"the Dockerfile of {image} has no ARG {name}, so it does nothing"
                remedy = choices(name, names)
                yield warning(Code.BUILD_ARGUMENT, path, found, remedy)


# distribution/reference, "Grammar": lowercase but for the host and the tag.
_REFERENCE = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
# NGC catalogue: tags with -igpu are for Jetson; AWS Deep Learning Containers and others say arm64.
_ARM = re.compile(r"-igpu\b|\bl4t\b|(?<![a-z])(arm64|aarch64)(?![a-z])")


def check_base(path: Path, image: str, config: ClusterConfig) -> Iterator[Finding]:
    """Yield why an image cannot be built from this one, or what is built would not run."""
    if "$" in image:
        return
    if not _REFERENCE.fullmatch(image):
        found = f"{image!r} is no name of an image: docker build stops at FROM"
        remedy = "write REGISTRY/NAME:TAG, in lowercase, without https:// and blanks"
        yield Finding(Code.BUILD_ARGUMENT, path, found, remedy)
        return
    if _is_floating(image):
        found = f"{image} is another image after each release, under one tag of ours"
        remedy = "name a release, best with its digest: IMAGE:TAG@sha256:..."
        yield warning(Code.BUILD_ARGUMENT, path, found, remedy)
    name = image.partition("@")[0]
    if _ARM.search(name):
        found = f"{image} is made for ARM processors, and all nodes and builds here have x86-64"
        yield Finding(Code.BUILD_ARGUMENT, path, found, "use the tag of the same image for x86-64")
    yield from _too_old(path, image, config)


def _too_old(path: Path, image: str, config: ClusterConfig) -> Iterator[Finding]:
    """Yield the newest GPU of the pools for which the image's CUDA has no code."""
    gpus = [
        INSTANCES[p.instance_type].gpu for p in config.gpu_pools if p.instance_type in INSTANCES
    ]
    missing = [gpu for gpu in gpus if is_older(image, FIRST_CUDA[gpu.cuda_major])]
    if missing:
        newest = max(missing, key=lambda gpu: FIRST_CUDA[gpu.cuda_major])
        first = ".".join(map(str, FIRST_CUDA[newest.cuda_major]))
        found = f"{image} is of a CUDA before {first}, the first one for {newest.name}"
        remedy = f"use an image with CUDA {first} or later"
        # Other pools may run it, and a fork's Dockerfile may bring another PyTorch.
        yield warning(Code.BUILD_ARGUMENT, path, found, remedy)


def _is_floating(image: str) -> bool:
    """Tell whether an image is named without a release: no tag, or the one that moves."""
    name, _, tag = image.rpartition("/")[2].partition(":")
    return "@" not in image and bool(name) and tag in {"", "latest"}


# git-check-ref-format(1), besides what the form of the key refuses.
_NO_BRANCH = re.compile(r"\.\.|//|/\.|/$|\.$|\.lock($|/)")


def check_source(config: ClusterConfig) -> Iterator[Finding]:
    """Yield what GitHub or CodeBuild have nothing for."""
    source, path = config.images.source, ("images", "source")
    if not isinstance(source, GithubSource):
        return
    if source.repository.endswith(".git"):
        found = f"{source.repository} is the end of an address"
        remedy = f"use {source.repository.removesuffix('.git')}"
        yield Finding(Code.IMAGE_SOURCE, (*path, "repository"), found, remedy)
    if source.branch.startswith("refs/") or _NO_BRANCH.search(source.branch):
        found = f"{source.branch!r} is no name of a branch"
        name = source.branch.removeprefix("refs/heads/")
        remedy = "use the name that `git branch` prints" if name == source.branch else f"use {name}"
        yield Finding(Code.IMAGE_SOURCE, (*path, "branch"), found, remedy)
    yield from check_partition((*path, "connection_arn"), source.connection_arn, config.region)
