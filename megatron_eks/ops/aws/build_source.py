"""What a build's tags say of its source: the project's version, and the commit of git."""

import re
import subprocess
from importlib.metadata import version

from megatron_eks.config.codes import Code
from megatron_eks.ops.failure import Failure
from megatron_eks.plan.cluster.images import REPOSITORIES
from megatron_eks.project import ROOT

_SECONDS = 30
_SHA = re.compile(r"[0-9a-f]{40}")


def project_version() -> str:
    """Return the version in pyproject.toml, as it is installed."""
    return version("megatron-eks")


def revision() -> str:
    """Return the commit of this checkout; raise Failure where that is not what would be built."""
    commit = _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "--", "assets")
    if changed:
        files = ", ".join(line[3:] for line in changed.splitlines()[:3])
        raise Failure(
            Code.BUILD_FAILED,
            f"a tag with the commit would be wrong: assets/ has changes that it lacks ({files})",
            "commit them, or use --tag-strategy auto",
        )
    return commit


def same_source(commit: str, image: str) -> bool:
    """Whether a build of a commit runs and holds the same files as one of this checkout would.

    All of assets/ counts but the folders of other images, the one file beside it that a build runs,
    and what says how git checks files out and which Python runs. Raises Failure where git cannot
    tell, or this checkout has changes of its own.
    """
    if not _SHA.fullmatch(commit):
        return False
    revision()
    others = [f":(exclude)assets/images/{name}" for name in REPOSITORIES if name != image]
    paths = ("assets", "megatron_eks/build_context.py", ".gitattributes", ".python-version")
    try:
        return not _git("diff-tree", "-r", "--name-only", commit, "HEAD", "--", *paths, *others)
    except Failure as failure:
        remedy = "run: git fetch, which may bring the commit"
        raise Failure(Code.BUILD_FAILED, failure.found, remedy) from None


def _git(*words: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 -- git, with words of our own
            ["git", "-C", str(ROOT), *words],  # noqa: S607 -- the user's own git
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as problem:
        remedy = "work in a checkout of git, or use --tag-strategy auto"
        raise Failure(
            Code.BUILD_FAILED, f"git does not tell the commit: {problem}", remedy
        ) from None
    return done.stdout.strip("\n")
