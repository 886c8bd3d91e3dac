"""An image, and how CodeBuild makes it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from megatron_eks.catalog.images import Image, TagStrategy, TestLevel, title
from megatron_eks.catalog.pins import NODE_DRIVER_VERSION, POD_UID
from megatron_eks.config.images import OwnImage

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


def buildspec(program: str = PROGRAM) -> str:
    """Return the buildspec of builds by a program, as JSON, which is YAML."""
    phases = {
        phase.name: {"commands": [f"python3 {program} {step}" for step in phase.steps]}
        for phase in PHASES
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
