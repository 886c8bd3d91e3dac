"""Writes the manifests of a project, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

from megatron_eks.project import ROOT

FOLDERS = ("platform", "validation", "jobs")


class SynthesisError(Exception):
    """The charts were not written; what is wrong with them has been printed."""


def synthesise_manifests(cluster_file: Path, folder: Path, *, quiet: bool = False) -> None:
    """Write the manifests of a project, findings going to stderr as `python -m charts` has them.

    Quietly, they do so only where the manifests cannot be written.
    """
    # A process of its own: none of `megatron_eks` knows a chart, and cdk8s starts a Node.
    done = subprocess.run(
        [sys.executable, "-m", "charts"],
        cwd=ROOT,
        env={
            **os.environ,
            "CLUSTER_CONFIG": str(cluster_file.resolve()),
            "CDK8S_OUTDIR": str(folder),
        },
        stdout=sys.stderr,
        stderr=subprocess.PIPE if quiet else None,
        check=False,
    )
    if done.returncode:
        sys.stderr.write((done.stderr or b"").decode(errors="replace"))
        raise SynthesisError("the manifests cannot be written")
