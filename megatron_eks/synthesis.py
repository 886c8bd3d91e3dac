"""Writes the templates and manifests of a project, in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

from megatron_eks.project import MANIFESTS, ROOT, TEMPLATES

FOLDERS = ("platform", "validation", "jobs")


_MANIFESTS = (sys.executable, "-P", "-m", "megatron_eks.charts")


class SynthesisError(Exception):
    """The charts were not written; what is wrong with them has been printed."""


def templates_command(cluster_file: Path) -> list[str]:
    """Return what writes the templates: the app.py beside a cluster file, or else our own."""
    own = cluster_file.resolve().with_name("app.py")
    ours = ["-P", "-m", "megatron_eks.stacks.app"]
    return [sys.executable, *([str(own)] if own.exists() else ours)]


def synthesise(cluster_file: Path) -> int:
    """Write templates and manifests beside a cluster file, and tell each finding once.

    Returns the first exit code that is not 0.
    """
    told: set[str] = set()
    for command in (templates_command(cluster_file), _MANIFESTS):
        done = subprocess.run(  # noqa: S603 -- our own entry points
            command,
            env={**os.environ, "CLUSTER_CONFIG": str(cluster_file)},
            stderr=subprocess.PIPE,
            check=False,
            text=True,
            errors="replace",
        )
        lines = done.stderr.splitlines(keepends=True)
        sys.stderr.writelines(line for line in lines if line not in told)
        told.update(lines)
        if done.returncode:
            return done.returncode
    written = (str(cluster_file.with_name(name)) for name in (TEMPLATES, MANIFESTS))
    sys.stderr.write(f"wrote {' and '.join(written)}\n")
    return 0


def synthesise_manifests(cluster_file: Path, folder: Path, *, quiet: bool = False) -> None:
    """Write the manifests of a project, findings going to stderr as `python -m charts` has them.

    Quietly, they do so only where the manifests cannot be written.
    """
    # A process of its own: none of `megatron_eks` knows a chart, and cdk8s starts a Node.
    done = subprocess.run(  # noqa: S603 -- our own entry point
        _MANIFESTS,
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
