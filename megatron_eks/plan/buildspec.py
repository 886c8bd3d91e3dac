"""What CodeBuild does with an image's source: its phases, reports, and what starts them.

Every phase runs steps of assets/codebuild/build_image.py, which `meks build --local` runs as well.
"""

import json
from dataclasses import dataclass

PROGRAM = "codebuild/build_image.py"
"""In the source: the folder `assets` itself, or below it in a checkout."""
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


def buildspec(source_folder: str) -> str:
    """Return the buildspec, as JSON, which is YAML; the folder is where a checkout has `assets`."""
    program = f"{source_folder}/{PROGRAM}" if source_folder else PROGRAM
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
