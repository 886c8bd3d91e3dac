"""The plan of the container images: where they are kept, what they are built from, and how."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from megatron_eks.catalog.pins import BUILD_ARGUMENTS
from megatron_eks.config.cluster import ClusterConfig, GithubSource

TestLevel = Literal["quick", "standard", "full"]
TagStrategy = Literal["auto", "semantic", "git-sha", "latest"]
LEVELS: tuple[TestLevel, ...] = get_args(TestLevel)
STRATEGIES: tuple[TagStrategy, ...] = get_args(TagStrategy)

REPOSITORIES: dict[Literal["megatron", "fsdp"], str] = {
    "megatron": "megatron-training",
    "fsdp": "fsdp",
}

# Disk: 128 GB, and 256 GB for the image that needs some 120 GB while it is built (CodeBuild User
# Guide, "On-demand environment types", read 2026-11).
BUILD_MACHINES: dict[Literal["megatron", "fsdp"], str] = {
    "megatron": "BUILD_GENERAL1_XLARGE",
    "fsdp": "BUILD_GENERAL1_LARGE",
}


@dataclass(frozen=True)
class ImagePlan:
    """One container image, and the tag of what this checkout builds."""

    name: Literal["megatron", "fsdp"]
    repository: str
    tag: str
    """Hash of the build context and of the arguments."""
    build_args: Mapping[str, str]
    """Of all that the Dockerfile declares, which has no defaults."""
    test_level: TestLevel
    tag_strategy: TagStrategy
    """What tag an image gets beside that of its content."""


@dataclass(frozen=True)
class SourcePlan:
    """A repository on GitHub that holds this project."""

    repository: str
    """OWNER/NAME."""
    branch: str
    connection_arn: str
    webhook: bool

    @property
    def url(self) -> str:
        """Where git finds it."""
        return f"https://github.com/{self.repository}.git"


def plan_images(config: ClusterConfig, image_tags: Mapping[str, str]) -> tuple[ImagePlan, ...]:
    """Plan the images of a configuration that has passed the checks."""
    return tuple(
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


def build_arguments(config: ClusterConfig, image: Literal["megatron", "fsdp"]) -> dict[str, str]:
    """Return the pins that an image is made of, or what the configuration has in their place."""
    return {**BUILD_ARGUMENTS[image], **getattr(config.images, image).build_args}


def plan_image_source(config: ClusterConfig) -> SourcePlan | None:
    """Plan where CodeBuild finds the source; None: in this checkout."""
    source = config.images.source
    if not isinstance(source, GithubSource):
        return None
    return SourcePlan(
        repository=source.repository.removesuffix(".git"),
        branch=source.branch,
        connection_arn=source.connection_arn,
        webhook=source.webhook,
    )


# CodeBuild's phases run steps of this program, which `meks build --local` runs as well.
PROGRAM = "assets/codebuild/build_image.py"
"""In a checkout, and in the copy of its files that CodeBuild gets."""
REPORTS = "/tmp/megatron-eks-build/reports"  # noqa: S108 -- a build machine is one build's
REPORT_GROUP = "selftest"
"""CodeBuild puts the project's name before it."""
DIGEST = "IMAGE_DIGEST"
"""What a build exports: CodeBuild keeps it with the build, where no other build can write."""


@dataclass(frozen=True)
class Phase:
    """One phase of CodeBuild, and the steps of our program that it runs."""

    name: str
    steps: tuple[str, ...]


# `post_build` runs even after a build that failed; the step `push` pushes only what was tested.
PHASES = (
    Phase("pre_build", ("check", "login")),
    Phase("build", ("build", "test")),
    Phase("post_build", ("push",)),
)


def buildspec() -> str:
    """Return the buildspec, as JSON, which is YAML."""
    phases = {
        phase.name: {"commands": [f"python3 {PROGRAM} {step}" for step in phase.steps]}
        for phase in PHASES
    }
    phases["post_build"]["commands"].append(f'export {DIGEST}="$(python3 {PROGRAM} digest)"')
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
