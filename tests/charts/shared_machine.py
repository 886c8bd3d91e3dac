"""A file system on which the set-up Job's script runs, and what is on it then."""

import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from megatron_eks.config.load import Document
from megatron_eks.config.parse import parse_cluster
from megatron_eks.plan.cluster.cluster import plan_cluster
from tests.charts import rendered
from tests.charts.rendered import Manifest, only, pod
from tests.stacks.synthesis import TAGS, cluster_file
from tests.variations import LUSTRE

PODS, OTHERS = 10001, 2000
NAMES = ("cache", "checkpoints", "data", "logs", "tokenizer")
MADE = dict.fromkeys(NAMES, (PODS, PODS, 0o770))

# As the container has it: root without most of its power.
_CAPABILITIES = ("setpriv", "--bounding-set", "-all,+chown,+dac_override,+fowner")

Entry = tuple[int, int, int] | str


def entries(folder: Path) -> dict[str, Entry]:
    """Return owner and mode of everything below a folder, and of itself; of a link its target."""
    found: dict[str, Entry] = {}
    for each in [folder, *sorted(folder.rglob("*"))]:
        state = each.lstat()
        plain: Entry = (state.st_uid, state.st_gid, stat.S_IMODE(state.st_mode))
        name = str(each.relative_to(folder))
        found[name] = f"-> {each.readlink()}" if each.is_symlink() else plain
    return found


@dataclass
class Machine:
    """A file system, and how the Job's container would run on it."""

    mount: Path
    tools: Path
    path: str | None = None
    """`storage.lustre.existing.path`."""
    existing: bool = True
    repositories: tuple[str, ...] = ()
    teams: tuple[tuple[str, str | None], ...] = ()
    """Names, each with a namespace or none."""

    def make(self, name: str, owner: int = 0, mode: int = 0o755) -> Path:
        """Make a directory."""
        folder = self.mount / name
        folder.mkdir(parents=True, exist_ok=True)
        os.chown(folder, owner, owner)
        folder.chmod(mode)
        return folder

    def tool(self, name: str, script: str) -> None:
        """Put a program of the test's own in the place of one of the image's."""
        real = shutil.which(name)
        file = self.tools / name
        file.unlink(missing_ok=True)
        file.write_text(f'#!/bin/sh\nreal={real}\ncd="{self.mount}"\n{script}')
        file.chmod(0o755)

    def run(self) -> tuple[int, str]:
        """Run the Job once; return its exit code and what it says."""
        container = _container(self.existing, self.path, self.repositories, self.teams)
        given = [word.replace("/shared", str(self.mount), 1) for word in container["args"]]
        done = subprocess.run(  # noqa: S603 -- our own script
            [*_CAPABILITIES, *container["command"], *given],
            check=False,
            capture_output=True,
            text=True,
            env={"PATH": f"{self.tools}:{os.environ['PATH']}"},
            cwd="/",
        )
        return done.returncode, done.stderr.replace(str(self.mount), "/shared")


@cache
def _container(
    existing: bool,  # noqa: FBT001 -- a key of the cache
    path: str | None,
    repositories: tuple[str, ...],
    teams: tuple[tuple[str, str | None], ...],
) -> Manifest:
    cluster = cluster_file()
    cluster["teams"] = [
        {"name": name, "namespace": space, "gpus": 8, "role_arns": [f"{_ROLE}{name}"]}
        for name, space in teams
    ]
    lustre = cluster["storage"]["lustre"]
    if existing:
        lustre["existing"] = {**LUSTRE, "path": path}
    lustre["data_repositories"] = [
        {"path": each, "s3_uri": f"s3://corpora{each}"} for each in repositories
    ]
    config, findings = parse_cluster(Document("cluster.yaml", value=cluster))
    assert config is not None, findings
    return pod(only(rendered.platform(plan_cluster(config, TAGS)), "Job")).container


_ROLE = "arn:aws:iam::123456789012:role/"


@pytest.fixture
def traced(tmp_path) -> Callable[..., Machine]:
    """Return a function that makes a file system, with tools that a test may replace."""
    tools = tmp_path / "tools"
    tools.mkdir()

    def build(owner: int = 0, mode: int = 0o755, **how: object) -> Machine:
        found = Machine(tmp_path / "shared", tools, **how)  # type: ignore[arg-type]
        found.make(".", owner, mode)
        return found

    return build


@pytest.fixture(params=["coreutils", pytest.param("busybox", marks=pytest.mark.tools)])
def machine(request, traced, tmp_path) -> Callable[..., Machine]:
    """Return the same function for the tools of a machine, and for those of the Job's image."""
    if request.param == "busybox":
        busybox = shutil.which("busybox")
        if busybox is None:
            pytest.fail("busybox is not installed - run `make shells`")
        # Its shell takes the other commands from itself.
        for name in ("sh", "mkdir", "stat", "chown", "chmod"):
            (tmp_path / "tools" / name).symlink_to(busybox)
    build: Callable[..., Machine] = traced
    return build
