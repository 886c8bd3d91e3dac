"""A run's checkpoint directory: its checkpoints, its tracker file, and what a start resumes from.

Layout: megatron/training/checkpointing.py, Megatron core 0.19. What makes a checkpoint whole is in
whole.py.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from megatron_eks.programs.checkpoint import manifest_format, manifests, whole
from megatron_eks.programs.checkpoint.whole import State

TRACKER = "latest_checkpointed_iteration.txt"
RELEASE = "release"

_BRIDGE_STATE = "train_state.pt"
_IMPORTED = ".imported.json"

Judge = Callable[[Path, str], State]


def iterations(root: Path) -> dict[int, Path]:
    """Return the iteration directories, oldest first; links are another owner's."""
    found = {}
    for path in root.iterdir() if root.is_dir() else ():
        number = manifest_format.iteration_of(path.name)
        if number is not None and path.is_dir() and not path.is_symlink():
            found[number] = path
    return dict(sorted(found.items()))


def loadable(root: Path, ckpt_format: str) -> dict[int, Path]:
    """Return the checkpoints that a run may go on from, as far as sizes tell, oldest first."""
    every = iterations(root).items()
    return {each: path for each, path in every if whole.by_sizes(path, ckpt_format).loadable}


def size_bytes(directory: Path) -> int:
    """Return what a checkpoint takes on the file system."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


@dataclass(frozen=True)
class Tracker:
    """The tracker file of a directory."""

    state: Literal["absent", "good", "torn", "dangling"]
    """good: it names a checkpoint that can be loaded, as far as sizes tell."""
    text: str = ""
    checkpoint: Path | None = None
    """What a good or dangling tracker names."""

    @property
    def step(self) -> int | None:
        """Return the iteration that it names."""
        return manifest_format.iteration_of(self.checkpoint.name) if self.checkpoint else None


def read_tracker(root: Path, ckpt_format: str) -> Tracker:
    """Read a tracker as Megatron does, and look whether its checkpoint is there."""
    path = root / TRACKER
    if not path.is_file() and (path.exists() or path.is_symlink()):
        return Tracker("torn", "no file")
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return Tracker("absent")
    text = raw.decode("ascii", errors="replace").strip()
    name = _directory_name(text)
    if name is None:
        return Tracker("torn", text)
    checkpoint = root / name
    good = whole.by_sizes(checkpoint, ckpt_format).loadable
    return Tracker("good" if good else "dangling", text, checkpoint)


@dataclass(frozen=True)
class Choice:
    """What a start resumes from."""

    takes: Path | None
    """None: nothing that can be loaded is there."""
    state: State
    """Of what is taken."""
    tracker: Tracker
    rejected: tuple[tuple[str, State], ...]
    """What was looked at before, newest first, and why it is not taken."""

    @property
    def lost(self) -> bool:
        """Tell whether there was a checkpoint once, and none can be loaded.

        A first save that did not end leaves no tracker behind, and nothing that was whole.
        """
        if self.takes is not None:
            return False
        ended = any(state.kind != "unfinished" for _, state in self.rejected)
        return ended or self.tracker.state != "absent"

    @property
    def why(self) -> str:
        """Say how it came to this choice."""
        named, state = self.tracker.checkpoint, self.tracker.state
        if self.lost:
            return f"no checkpoint can be loaded: {self.reasons}"
        if self.takes is None:
            return "no save has come to its end"
        if self.takes == named:
            return "the tracker file names it"
        if named is not None and state == "good" and not self.rejected:
            return f"it was finished after the tracker file, which names {named.name}"
        of_tracker = {"absent": "no tracker file is there", "torn": "the tracker file is torn"}
        return f"the newest that can be loaded; {of_tracker.get(state, self.reasons)}"

    @property
    def reasons(self) -> str:
        """Say what is wrong with what is not taken."""
        if not self.rejected:
            return f"{TRACKER} says {self.tracker.text[:40]!r}, and nothing is there"
        return "; ".join(f"{name}: {state.why}" for name, state in self.rejected)


def choose(root: Path, ckpt_format: str, judge: Judge = whole.by_sizes) -> Choice:
    """Say what a start resumes from: what the tracker names, else the newest that can be loaded.

    A newer one that was finished after the tracker was written comes first: the run ended in
    between. With an older tracker than that, people go back on purpose.
    """
    tracker = read_tracker(root, ckpt_format)
    candidates = list(reversed(iterations(root).values()))
    if tracker.checkpoint is not None:
        newer = [path for path in candidates if _is_after(path, tracker.step, root / TRACKER)]
        candidates = [*newer, tracker.checkpoint, *candidates]
    if tracker.state != "good":
        candidates.append(root / RELEASE)
    rejected: list[tuple[str, State]] = []
    for path in dict.fromkeys(candidates):
        state = judge(path, ckpt_format)
        if state.loadable:
            return Choice(path, state, tracker, tuple(rejected))
        if path.name != RELEASE or path.exists():
            rejected.append((path.name, state))
    rejected += [(name, State("damaged", "no name of a checkpoint")) for name in _misnamed(root)]
    return Choice(None, State("damaged"), tracker, tuple(rejected))


def _is_after(checkpoint: Path, number: int | None, tracker: Path) -> bool:
    """Tell whether a checkpoint is a newer one, and was saved after the tracker was written.

    All of it: Megatron writes over the files of one that a run has gone back from.
    """
    if number is None or manifest_format.step_of(checkpoint.name) <= number:
        return False
    times = [path.stat().st_mtime_ns for path in manifests.files_of(checkpoint)]
    return min(times, default=0) > tracker.stat().st_mtime_ns


def _misnamed(root: Path) -> Iterator[str]:
    """Yield what was a checkpoint once, or is elsewhere: renamed directories and links."""
    known = iterations(root).values()
    for path in sorted(root.glob("iter_*")):
        if path not in known and (path.is_dir() or path.is_symlink()):
            yield path.name


def lost(root: Path, choice: Choice) -> tuple[Path, str, str]:
    """Return where no checkpoint can be loaded, why, and how to go on."""
    remedy = "bring a whole copy back (meks ckpt pull); to start over on purpose move them away, "
    found = f"checkpoints are there, and none can be loaded: {choice.reasons}"
    return root, found, f"{remedy}or name another directory"


def point_to(root: Path, checkpoint: Path) -> None:
    """Let a run resume from a checkpoint."""
    number = manifest_format.iteration_of(checkpoint.name)
    manifests.replace_file(root / TRACKER, (RELEASE if number is None else str(number)).encode())


def forget_newer(root: Path, checkpoint: Path) -> None:
    """Remove the manifests of newer checkpoints, over which a run that goes back will write."""
    number = manifest_format.iteration_of(checkpoint.name)
    for each, path in iterations(root).items():
        if number is not None and each > number:
            (path / manifest_format.MANIFEST).unlink(missing_ok=True)


def set_aside(checkpoint: Path) -> str:
    """Give a damaged checkpoint a name that nothing takes for one, and return it."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return checkpoint.rename(checkpoint.with_name(f"{checkpoint.name}.damaged-{stamp}")).name


def note_imported(root: Path) -> None:
    """Write down, at the first start in a directory, which checkpoints others put there."""
    if imported(root) is None:
        names = [path.name for path in iterations(root).values()]
        manifests.replace_file(root / _IMPORTED, json.dumps(names).encode())


def imported(root: Path) -> frozenset[str] | None:
    """Return the checkpoints that others put there; None if no start has noted them, or damaged."""
    try:
        names = json.loads((root / _IMPORTED).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return frozenset(map(str, names)) if isinstance(names, list) else None


def point_bridge(root: Path, checkpoint: Path) -> bool:
    """Let Megatron-Bridge resume from a checkpoint too, and tell whether anything was to do.

    It reads a copy of the checkpoint's train state before the tracker file
    (megatron/bridge/training/checkpointing.py, 0.6).
    """
    state, copy = checkpoint / _BRIDGE_STATE, root / f"latest_{_BRIDGE_STATE}"
    if not state.exists() or (copy.exists() and copy.read_bytes() == state.read_bytes()):
        return False
    beside = root / f".{copy.name}"
    shutil.copyfile(state, beside)
    beside.replace(copy)
    return True


def _directory_name(text: str) -> str | None:
    if text == RELEASE:
        return RELEASE
    try:
        number = int(text)
    except ValueError:
        return None
    return f"iter_{number:07d}" if number >= 0 else None


def publish(root: Path, name: str) -> bool:
    """Make a run resume from a checkpoint, unless it would from a newer one."""
    takes, step_of = choose(root, whole.DEFAULT_FORMAT).takes, manifest_format.step_of
    if takes is not None and step_of(takes.name) > step_of(name):
        return False
    point_bridge(root, root / name)
    point_to(root, root / name)
    return True
