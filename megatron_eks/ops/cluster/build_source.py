"""What a build's tags say of its source: the project's version, and the commit of git."""

import re
import subprocess
from importlib.metadata import version

from megatron_eks.build_context import context_paths
from megatron_eks.config.codes import Code
from megatron_eks.ops.failure import Failure
from megatron_eks.plan.cluster.images import REPOSITORIES
from megatron_eks.project import IN_CHECKOUT, ROOT

_SECONDS = 30
_OURS = {path for image in REPOSITORIES for path in context_paths(image) if "assets" not in path}
# A build runs the one file that is in no image.
_SOURCES = ("assets", *sorted(_OURS), "megatron_eks/build_context.py")
_SHA = re.compile(r"[0-9a-f]{40}")


def project_version() -> str:
    """Return the version in pyproject.toml, as it is installed."""
    return version("megatron-eks")


def revision() -> str:
    """Return the commit of this checkout; raise Failure where that is not what would be built."""
    commit = _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "--", *_SOURCES)
    if changed:
        files = ", ".join(line[3:] for line in changed.splitlines()[:3])
        raise Failure(
            Code.BUILD_FAILED,
            f"a tag with the commit would be wrong: the images' files have other changes ({files})",
            "commit them, or use --tag-strategy auto",
        )
    return commit


def same_source(commit: str, image: str) -> bool:
    """Whether a build of a commit runs and holds the same files as one of this checkout would.

    What images and their builds are made of counts, but for the folders of other images, and what
    says how git checks files out and which Python runs. Raises Failure where git cannot tell, or
    this checkout has changes of its own.
    """
    if not _SHA.fullmatch(commit):
        return False
    revision()
    others = [f":(exclude)assets/images/{name}" for name in REPOSITORIES if name != image]
    paths = (*_SOURCES, ".gitattributes", ".python-version", *others)
    try:
        return not _git("diff-tree", "-r", "--name-only", commit, "HEAD", "--", *paths)
    except Failure as failure:
        remedy = "run: git fetch, which may bring the commit"
        raise Failure(Code.BUILD_FAILED, failure.found, remedy) from None


def _git(*words: str) -> str:
    if not IN_CHECKOUT:
        # A repository around the installed package would tell commits of its own.
        found = "this is an installed package, and no checkout with commits"
        raise Failure(Code.BUILD_FAILED, found, "use --tag-strategy auto or semantic")
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
