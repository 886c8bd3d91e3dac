"""The layouts of checkpoint directories, for what handles checkpoints of any program."""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import checkpoints

_BRIDGE_STATE = "train_state.pt"


@dataclass(frozen=True)
class Layout:
    """How one kind of program names its checkpoints and the newest of them."""

    kind: str
    directory: re.Pattern[str]
    """Matches a checkpoint's name; its group is the step."""
    pointer: str
    """File in the root that names the checkpoint from which a run resumes."""
    is_complete: Callable[[Path], bool]
    pointer_text: Callable[[str, int], str]
    """The pointer's text, by the checkpoint's name and step."""

    def found(self, root: Path) -> dict[int, Path]:
        """Return the checkpoint directories, oldest first; links are another owner's."""
        every = {
            int(match[1]): path
            for path in root.iterdir()
            if (match := self.directory.fullmatch(path.name))
            and path.is_dir()
            and not path.is_symlink()
        }
        return dict(sorted(every.items()))

    def publish(self, root: Path, name: str, step: int) -> bool:
        """Make a run resume from a checkpoint, unless it would from a newer whole one."""
        newer = (path for number, path in self.found(root).items() if number > step)
        if (root / self.pointer).exists() and any(self.is_complete(path) for path in newer):
            return False
        state = root / name / _BRIDGE_STATE
        if state.exists():
            # Megatron-Bridge reads this copy before the tracker
            # (megatron/bridge/training/checkpointing.py, 0.6).
            beside = root / f".latest_{_BRIDGE_STATE}"
            shutil.copyfile(state, beside)
            beside.replace(root / f"latest_{_BRIDGE_STATE}")
        checkpoints.replace_text(root / self.pointer, self.pointer_text(name, step))
        return True


def _is_dcp(directory: Path) -> bool:
    """torch.distributed.checkpoint writes .metadata last, and renames it into its place."""
    metadata = directory / ".metadata"
    return metadata.is_file() and metadata.stat().st_size > 0


LAYOUTS = (
    Layout(
        kind="megatron",
        directory=re.compile(r"iter_(\d{7,})"),
        pointer=checkpoints.TRACKER,
        is_complete=lambda path: checkpoints.is_complete(path, checkpoints.DEFAULT_FORMAT),
        pointer_text=lambda _name, step: str(step),
    ),
    Layout(
        kind="fsdp",
        directory=re.compile(r"step[_-](\d+)"),
        pointer="latest",
        is_complete=_is_dcp,
        pointer_text=lambda name, _step: name,
    ),
)
"""Megatron-LM and Megatron-Bridge; train_fsdp.py and whatever names its checkpoints the same."""


def layout_of(name: str) -> tuple[Layout, int] | None:
    """Return the layout and the step of a checkpoint's name."""
    for layout in LAYOUTS:
        match = layout.directory.fullmatch(name)
        if match:
            return layout, int(match[1])
    return None


def complete(root: Path) -> dict[int, Path]:
    """Return the whole checkpoints of a directory by step, oldest first."""
    return {
        step: path
        for layout in LAYOUTS
        for step, path in layout.found(root).items()
        if layout.is_complete(path)
    }
