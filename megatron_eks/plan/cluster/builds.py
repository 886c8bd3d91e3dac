"""How CodeBuild makes an image."""

import json
from dataclasses import dataclass

from megatron_eks.catalog.images import Image

# Disk: 128 GB, and 256 GB for the image that needs some 120 GB while it is built (CodeBuild User
# Guide, "On-demand environment types", read 2026-11).
BUILD_MACHINES: dict[Image, str] = {
    "megatron": "BUILD_GENERAL1_XLARGE",
    "fsdp": "BUILD_GENERAL1_LARGE",
}


# CodeBuild's phases run steps of this program, which `meks build --local` runs as well.
PROGRAM = "assets/codebuild/build_image.py"
"""In a checkout, and in the copy of its files that a build gets."""
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
