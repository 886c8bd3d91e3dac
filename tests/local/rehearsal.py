"""`meks local` in a cache folder of its own, beside the programs that are built already."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from megatron_eks.local.kubernetes.build import cache_folder
from megatron_eks.project import ROOT


def rehearsal_in(
    folder: Path, programs: dict[str, Path]
) -> tuple[Path, Callable[..., "subprocess.CompletedProcess[str]"]]:
    """Return the cache folder, and a function that runs `meks local` with it."""
    cache = cache_folder({"XDG_CACHE_HOME": str(folder)})
    cache.mkdir()
    (cache / "kubernetes").symlink_to(programs["etcd"].parents[1])

    def local(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(  # noqa: S603 -- our own command
            [sys.executable, "-m", "megatron_eks", "local", *words],
            cwd=ROOT,
            env={**os.environ, "XDG_CACHE_HOME": str(folder)},
            capture_output=True,
            text=True,
            check=False,
        )

    return cache, local
