"""The container images: where they are kept, their bases and build arguments."""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from megatron_eks.catalog.gpus import FIRST_CUDA, is_older
from megatron_eks.catalog.images import Image, TagStrategy, TestLevel, title
from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.catalog.pins import BUILD_ARGUMENTS, NODE_DRIVER_VERSION, POD_UID
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Path, choices, warning
from megatron_eks.config.images import GithubSource, ImageBuild, OwnImage
from megatron_eks.plan.cluster.zones import check_partition

# Disk: 128 GB, and 256 GB for the image that needs some 120 GB while it is built (CodeBuild User
# Guide, "On-demand environment types", read 2026-11).
BUILD_MACHINES: dict[Image, str] = {
    "megatron": "BUILD_GENERAL1_XLARGE",
    "fsdp": "BUILD_GENERAL1_LARGE",
}


# CodeBuild's phases run steps of this program, which `meks build --local` runs as well.
PROGRAM, OWN_PROGRAM = (f"assets/codebuild/build_{name}.py" for name in ("image", "own"))
"""In a checkout, and in the copy of its files that a build gets."""
CONTEXT = "context"
"""Where such a copy has the folder of an image of the user's."""
REPORTS = "/tmp/megatron-eks-build/reports"  # noqa: S108 -- a build machine is one build's
REPORT_GROUP = "selftest"
"""CodeBuild puts the project's name before it."""
DIGEST = "IMAGE_DIGEST"
"""What a build exports: CodeBuild keeps it with the build, where no other build can write."""


OWN_ARGUMENTS = {"NODE_DRIVER_VERSION": NODE_DRIVER_VERSION, "POD_UID": str(POD_UID)}
"""What a Dockerfile of the user's gets besides BASE_IMAGE, which is known when a build starts."""

REPOSITORIES: dict[Image, str] = {"megatron": "megatron-training", "fsdp": "fsdp"}

# `post_build` runs even after a build that failed; the step `push` pushes only what was tested.
PHASES = {"pre_build": ("check", "login"), "build": ("build", "test"), "post_build": ("push",)}
"""Phases of CodeBuild, and the steps of our program that each runs."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Arguments stand in the template and in the history of the image (Docker, "Build variables").
_SECRET_NAME = re.compile(
    r"(.*_)?(TOKEN|SECRET|PASSWORD|PASSWD|(API|NGC)_?KEY|PRIVATE_KEY|SECRET_KEY|CREDENTIALS?)"
)

# What the Dockerfile compares as a whole: sha256sum's line, and `git rev-parse HEAD`.
_HASHES = {
    "EFA_INSTALLER_SHA256": (64, "the archive's SHA-256"),
    "MEGATRON_LM_COMMIT": (40, "the tag's commit"),
}

# The Dockerfile compares what it gets by the one with the other.
_PAIRS = {"EFA_INSTALLER_VERSION": "EFA_INSTALLER_SHA256", "MEGATRON_LM_TAG": "MEGATRON_LM_COMMIT"}

# distribution/reference, "Grammar": lowercase but for the host and the tag.
_REFERENCE = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
# NGC catalogue: tags with -igpu are for Jetson; AWS Deep Learning Containers and others say arm64.
_ARM = re.compile(r"-igpu\b|\bl4t\b|(?<![a-z])(arm64|aarch64)(?![a-z])")

# git-check-ref-format(1), besides what the form of the key refuses.
_NO_BRANCH = re.compile(r"\.\.|//|/\.|/$|\.$|\.lock($|/)")


@dataclass(frozen=True)
class ImagePlan:
    """One container image, and the tag of what this checkout builds."""

    name: str
    repository: str
    tag: str
    """Hash of the build context and of the arguments."""
    build_args: Mapping[str, str]
    """Of all that the Dockerfile declares, which has no defaults."""
    test_level: TestLevel = "standard"
    tag_strategy: TagStrategy = "auto"
    """What tag an image gets beside that of its content."""
    own: OwnImage | None = None
    """What the cluster file says of an image of the user's."""

    @property
    def title(self) -> str:
        """How its logical ids begin."""
        return title(self.name)

    @property
    def keys(self) -> tuple[str, str]:
        """In the stack's outputs: of its URI, and of its project of CodeBuild."""
        return f"{self.title}Image", f"{self.title}BuildProject"

    @property
    def base(self) -> Image | None:
        """The image of ours that one of the user's starts from."""
        return self.own.base if self.own else None

    @property
    def program(self) -> str:
        """What runs the steps of its build."""
        return PROGRAM if self.own is None else OWN_PROGRAM

    @property
    def machine(self) -> str:
        """What CodeBuild builds it on."""
        largest = "megatron" in (self.name, self.base)
        return BUILD_MACHINES["megatron" if largest else "fsdp"]

    def environment(self, repository: str) -> dict[str, str]:
        """Return the variables that say to `assets/codebuild/build_image.py` what to do."""
        found = {
            "IMAGE_NAME": self.name,
            "REPOSITORY_URI": repository,
            "IMAGE_TAG": self.tag,
            "BUILD_ARGS": json.dumps(dict(self.build_args), sort_keys=True),
            "TEST_LEVEL": self.test_level,
            "TAG_STRATEGY": self.tag_strategy,
        }
        if self.own is not None:
            found |= {"DOCKERFILE": self.own.dockerfile, "TEST": self.own.test}
            found |= {"BASE": self.own.base} if self.own.base else {}
        return found


def plan_images(config: ClusterConfig, image_tags: Mapping[str, str]) -> tuple[ImagePlan, ...]:
    """Plan the images of a configuration that has passed the checks, ours first."""
    prefix, found = config.images.prefix, []
    for name, repository in REPOSITORIES.items():
        build: ImageBuild = getattr(config.images, name)
        arguments, how = build_arguments(config, name), (build.test_level, build.tag_strategy)
        found.append(ImagePlan(name, f"{prefix}{repository}", image_tags[name], arguments, *how))
    for image in config.images.own:
        place, tag = f"{prefix}{image.name}", image_tags[image.name]
        found.append(ImagePlan(image.name, place, tag, OWN_ARGUMENTS, own=image))
    return tuple(found)


def build_arguments(config: ClusterConfig, image: Image) -> dict[str, str]:
    """Return the pins that an image is made of, or what the configuration has in their place."""
    return {**BUILD_ARGUMENTS[image], **getattr(config.images, image).build_args}


def buildspec(program: str = PROGRAM) -> str:
    """Return the buildspec of builds by a program, as JSON, which is YAML."""
    phases = {
        phase: {"commands": [f"python3 {program} {step}" for step in steps]}
        for phase, steps in PHASES.items()
    }
    phases["post_build"]["commands"].append(f'export {DIGEST}="$(python3 {program} digest)"')
    return json.dumps(
        {
            "version": 0.2,
            "env": {"exported-variables": [DIGEST]},
            "phases": phases,
            "reports": {
                REPORT_GROUP: {
                    "files": ["*.xml"],
                    "base-directory": REPORTS,
                    "file-format": "JUNITXML",
                }
            },
        },
        indent=2,
    )


def check_images(config: ClusterConfig) -> Findings:
    """Yield arguments that no build takes, and those that nobody should see."""
    for image in ("megatron", "fsdp"):
        for name, value in getattr(config.images, image).build_args.items():
            path: Path = ("images", image, "build_args", name)
            if problem := _argument(name, value):
                yield Finding(Code.BUILD_ARGUMENT, path, *problem)
            elif name == "BASE_IMAGE":
                yield from check_base(path, value, config)
    given, pinned = config.images.megatron.build_args, BUILD_ARGUMENTS["megatron"]
    for name, other in (*_PAIRS.items(), *((other, name) for name, other in _PAIRS.items())):
        if given.get(name, pinned[name]) != pinned[name] and other not in given:
            found = f"the build compares it with {other}, which is that of {pinned[name]}"
            path = ("images", "megatron", "build_args", name)
            yield Finding(Code.BUILD_ARGUMENT, path, found, f"set {other} too")


def _argument(name: str, value: str) -> tuple[str, str] | None:
    digits, what = _HASHES.get(name, (0, ""))
    if not _NAME.fullmatch(name):
        remedy = "use letters, digits and '_', not starting with a digit"
        return f"{name!r} is no argument's name", remedy
    if _SECRET_NAME.fullmatch(name.upper()):
        remedy = "remove and replace it; jobs take tokens from a Secret: token_secret"
        return f"{name} looks like a secret, and everybody with the image can read it", remedy
    if digits and not re.fullmatch(f"[0-9a-f]{{{digits}}}", value):
        remedy = f"write all {digits} hexadecimal digits, in lowercase"
        return f"the build compares it with {what}, and this is none", remedy
    return None


def check_arguments(config: ClusterConfig, known: Mapping[Image, Collection[str]]) -> Findings:
    """Yield arguments that the Dockerfiles, by image, do not declare: Docker ignores them."""
    for image, names in known.items():
        for name in getattr(config.images, image).build_args:
            if name not in names and _NAME.fullmatch(name):
                path: Path = ("images", image, "build_args", name)
                found = f"the Dockerfile of {image} has no ARG {name}, so it does nothing"
                yield warning(Code.BUILD_ARGUMENT, path, found, choices(name, names))


def check_base(path: Path, image: str, config: ClusterConfig) -> Findings:
    """Yield why an image cannot be built from this one, or what is built would not run."""
    if "$" in image:
        return
    if not _REFERENCE.fullmatch(image):
        found = f"{image!r} is no name of an image: docker build stops at FROM"
        remedy = "write REGISTRY/NAME:TAG, in lowercase, without https:// and blanks"
        yield Finding(Code.BUILD_ARGUMENT, path, found, remedy)
        return
    name, _, tag = image.rpartition("/")[2].partition(":")
    if "@" not in image and name and tag in {"", "latest"}:
        found = f"{image} is another image after each release, under one tag of ours"
        remedy = "name a release, best with its digest: IMAGE:TAG@sha256:..."
        yield warning(Code.BUILD_ARGUMENT, path, found, remedy)
    if _ARM.search(image.partition("@")[0]):
        found = f"{image} is made for ARM processors, and all nodes and builds here have x86-64"
        yield Finding(Code.BUILD_ARGUMENT, path, found, "use the tag of the same image for x86-64")
    yield from _too_old(path, image, config)


def _too_old(path: Path, image: str, config: ClusterConfig) -> Findings:
    """Yield the newest GPU of the pools for which the image's CUDA has no code."""
    types = (pool.instance_type for pool in config.gpu_pools)
    gpus = [INSTANCES[each].gpu for each in types if each in INSTANCES]
    missing = [gpu for gpu in gpus if is_older(image, FIRST_CUDA[gpu.cuda_major])]
    if missing:
        newest = max(missing, key=lambda gpu: FIRST_CUDA[gpu.cuda_major])
        first = ".".join(map(str, FIRST_CUDA[newest.cuda_major]))
        found = f"{image} is of a CUDA before {first}, the first one for {newest.name}"
        # Other pools may run it, and a fork's Dockerfile may bring another PyTorch.
        yield warning(Code.BUILD_ARGUMENT, path, found, f"use an image with CUDA {first} or later")


def check_source(config: ClusterConfig) -> Findings:
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
