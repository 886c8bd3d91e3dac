"""`meks local` in a cache folder of its own, beside the programs that are built already."""

import os
from collections.abc import Callable
from pathlib import Path

from megatron_eks.localcloud.kubernetes.build import cache_folder
from tests import command


def rehearsal_in(
    folder: Path, programs: dict[str, Path]
) -> tuple[Path, Callable[..., command.Done]]:
    """Return the cache folder, and a function that runs `meks local` with it."""
    cache = cache_folder({"XDG_CACHE_HOME": str(folder)})
    cache.mkdir()
    (cache / "kubernetes").symlink_to(programs["etcd"].parents[1])

    def local(*words: str, **more: str) -> command.Done:
        env = {**os.environ, "XDG_CACHE_HOME": str(folder), **more}
        return command.meks("local", *words, env=env)

    return cache, local
