"""A hundred damages of checkpoints: nothing whole is lost, nothing damaged is taken for whole.

Each example damages a run's directory of real saves at random, and then asks every program: what
a restart takes, what retention removes, what is sent to S3 and comes back.
"""

import contextlib
import json
import os
import random
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from megatron_eks.programs.checkpoint import (
    checkpoints,
    commands,
    manifests,
    prune,
    retention,
    whole,
)
from megatron_eks.programs.checkpoint.commands import Sync
from megatron_eks.programs.checkpoint.remote import Remote
from megatron_eks.programs.program import Report, StopError
from megatron_eks.programs.s3_store import Store
from megatron_eks.programs.start import preconditions
from tests.programs import saved
from tests.programs.megatron_files import TRACKER, write_rank
from tests.programs.s3_world import URI, World

STEPS = (100, 200, 300, 400)
SIZES = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 1}
FORMATS = ("torch_dist", "torch")
# More of them for a long look: DAMAGES=1000 pytest tests/programs/test_damages.py
DAMAGES = int(os.environ.get("DAMAGES", "100"))


def truncate(path: Path, anywhere: random.Random) -> None:
    """Cut a file."""
    os.truncate(path, anywhere.randrange(path.stat().st_size))


def zero(path: Path, anywhere: random.Random) -> None:
    """Lose a block in the middle of a file's content."""
    size = path.stat().st_size
    begin = anywhere.randrange(size)
    with path.open("r+b") as file:
        file.seek(begin)
        had = file.read(4096)
        file.seek(begin)
        file.write(bytes(255 - byte for byte in had))


def delete(path: Path, _: random.Random) -> None:
    """Lose a file."""
    path.unlink()


def swap(path: Path, anywhere: random.Random) -> None:
    """Exchange two files of a checkpoint."""
    found = [each for each in manifests.files_of(path.parent) if each != path]
    other = anywhere.choice(found or [path])
    if other.read_bytes() == path.read_bytes():
        path.unlink()
        return
    aside = path.with_name("aside")
    path.rename(aside)
    other.rename(path)
    aside.rename(other)


FILE_DAMAGES = (truncate, zero, delete, swap)


def write(root: Path, ckpt_format: str) -> None:
    """Write the saves of a run and its tracker."""
    root.mkdir()
    checkpoints.note_imported(root)
    for step in STEPS:
        if ckpt_format == "torch_dist":
            saved.megatron(root, step, size=3000)
        else:
            for rank in ("mp_rank_00", "mp_rank_01"):
                write_rank(root / f"iter_{step:07d}", rank, step=step, sizes=SIZES)
    (root / TRACKER).write_text(str(STEPS[-1]))


def damage_one(root: Path, anywhere: random.Random, *, sealed: bool) -> tuple[str, str]:
    """Damage a checkpoint in one way; return its name and what was done."""
    path = anywhere.choice([*checkpoints.iterations(root).values()])
    files = [each for each in manifests.files_of(path) if each.stat().st_size]
    other = root / f"iter_{anywhere.randrange(500, 10_000):07d}"
    kind = anywhere.choice(["file", "file", "file", "rename", "duplicate", "half"])
    if kind == "rename":
        path.rename(other)
    elif kind == "duplicate":
        shutil.copytree(path, other)
    elif kind == "half":
        shutil.copytree(path, other)
        for each in anywhere.sample(files, anywhere.randint(0, len(files))):
            (other / each.relative_to(path)).unlink()
        for folder in other.glob("mp_rank_*"):
            # A copy that ended before makes none.
            if not any(folder.iterdir()):
                folder.rmdir()
    elif files:
        # What two ranks exchange before there is a manifest nobody can know.
        way = anywhere.choice(FILE_DAMAGES if sealed else FILE_DAMAGES[:3])
        file = anywhere.choice(files)
        way(file, anywhere)
        return path.name, f"{way.__name__} {file.relative_to(root)}"
    return other.name, f"{kind} {path.name}"


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("ckpt_format", FORMATS)
def test_damages_of_a_directory(tmp_path, ckpt_format, sealed):
    """Restart, guard and retention agree, whatever is damaged."""
    for number in range(DAMAGES // 4):
        anywhere = random.Random(number)  # noqa: S311 -- no secret
        root = tmp_path / str(number)
        write(root, ckpt_format)
        if sealed:
            retention.seal_new(root, ckpt_format, retention.Known())
        before = {path.name for path in checkpoints.iterations(root).values()}
        done = [damage_one(root, anywhere, sealed=sealed) for _ in range(anywhere.randint(1, 4))]
        bad = {name for name, _ in done}
        there = {path.name for path in checkpoints.iterations(root).values()}
        good = (before & there) - bad
        known = retention.Known(threads=1)
        retention.seal_new(root, ckpt_format, known)
        retention.prune(root, 2, ckpt_format, known)
        left = {path.name for path in checkpoints.iterations(root).values()}
        choice = checkpoints.choose(root, ckpt_format, known.judge)
        why = f"seed {number}: {done}, left {sorted(left)}, {choice}"
        # Of the whole ones at most those go that are older than the newest two.
        assert sorted(good)[-2:] == sorted(good & left)[-2:], why
        assert choice.takes is None or choice.takes.name in good, why
        assert (choice.takes is not None) == bool(good), why
        if choice.takes is not None:
            assert choice.takes.name == max(good), why
        facts: dict[str, object] = {}
        found = list(preconditions.resume(root, ckpt_format, facts, deadline=time.monotonic() + 60))
        assert facts.get("start") == (str(choice.takes) if choice.takes else None), why
        assert any(each.level == "error" for each in found) == (not good), (why, found)


def damage_far(s3: World, anywhere: random.Random) -> tuple[str, str]:
    """Damage a checkpoint in S3 in one way; return its name and what was done."""
    keys = [key for key in s3.names() if key.startswith("iter_") and s3.content(key)]
    key = anywhere.choice(keys)
    name = key.partition("/")[0]
    kind = anywhere.choice(["delete", "cut", "other bytes", "other's manifest", "pointer"])
    if kind == "pointer":
        s3.put("latest", anywhere.choice([b"{torn", b"[]", b'{"version": 1, "name": "../x"}']))
        return "", kind
    if kind == "delete":
        s3.delete(key)
    elif kind == "other's manifest":
        other = anywhere.choice([each for each in keys if each.endswith("/manifest.json")])
        if other.partition("/")[0] == name:
            return "", "nothing"
        s3.put(f"{name}/manifest.json", json.dumps(s3.json(other)).encode())
    else:
        content = s3.content(key)
        s3.put(key, content[:-1] if kind == "cut" else bytes(255 - byte for byte in content))
    return name, f"{kind} {key}"


@pytest.mark.long
def test_damages_in_s3(s3, tmp_path):
    """A pull brings what is whole, a prune removes nothing that it needs, a push mends."""
    near = tmp_path / "near"
    write(near, "torch_dist")
    retention.seal_new(near, "torch_dist", retention.Known())
    original = {path.name: saved.content(path) for path in checkpoints.iterations(near).values()}
    for number in range(DAMAGES // 4):
        anywhere = random.Random(number)  # noqa: S311 -- no secret
        s3.clear()
        sync = Sync(near, Remote(Store(URI)), Report(), 2)
        commands.push(sync, None, every=True)
        done = [damage_far(s3, anywhere) for _ in range(anywhere.randint(1, 4))]
        good = set(original) - {name for name, _ in done}
        why = f"seed {number}: {done}"
        with contextlib.suppress(StopError):
            prune.prune(sync, 2)
        gone = {name for name in original if sync.remote.look(name) is None}
        assert sorted(good)[-2:] == sorted(good - gone)[-2:], why
        far = replace(sync, directory=tmp_path / f"far-{number}", report=Report())
        if good:
            commands.pull(far, None)
            pulled = str(far.report.facts["pulled"])
            assert pulled in good, why
            assert saved.content(far.directory / pulled) == original[pulled], why
            assert whole.by_bytes(far.directory / pulled).kind == "whole", why
        else:
            with pytest.raises(StopError):
                commands.pull(far, None)
            assert not checkpoints.iterations(far.directory) if far.directory.exists() else True
        with contextlib.suppress(StopError):
            commands.push(sync, None, every=False)
            named, _ = sync.remote.latest()
            assert named is not None, why
            assert sync.remote.damage(sync.remote.look(named)) is None, why
