"""What has to be true before GPUs start to work: data, tokenizer, directories and checkpoints."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from megatron_eks.programs.checkpoint import checkpoints, disk, manifest_format, whole
from megatron_eks.programs.checkpoint.checkpoints import Choice, Tracker
from megatron_eks.programs.checkpoint.whole import State
from megatron_eks.programs.prepare.indexed_data import (
    DataSet,
    blend_prefixes,
    check_prefix,
    check_split,
)
from megatron_eks.programs.program import Finding, error, warning

_DATA_OPTIONS = ("--data-path", "--train-data-path", "--valid-data-path", "--test-data-path")
_FILES = ("NCCL_DEBUG_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")

# Base weights are bf16, 2 bytes a parameter; a checkpoint has 14: fp32 weights and both Adam
# moments besides.
_CHECKPOINT_PER_BASE = 7
_CHECKPOINTS_NEEDED = 2


class MegatronArguments:
    """The words for Megatron, by option; of an option given twice the last one counts."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        self._values: dict[str, list[str]] = {}
        values: list[str] = []
        for word in self.words:
            if word.startswith("--"):
                name, equals, value = word.partition("=")
                values = self._values[name] = [value] if equals else []
            else:
                values.append(word)

    def values(self, option: str) -> tuple[str, ...]:
        """Return the words after an option; empty if it is absent or a flag."""
        return tuple(self._values.get(option, ()))

    def value(self, option: str) -> str | None:
        """Return the word after an option."""
        return next(iter(self.values(option)), None)

    def path(self, option: str) -> Path | None:
        """Return the directory after an option."""
        return Path(value) if (value := self.value(option)) else None


def check_data(words: MegatronArguments, good: list[DataSet]) -> Iterator[Finding]:
    """Check every data set that is named; the good ones are appended to `good`."""
    split = words.value("--split")
    for option in _DATA_OPTIONS:
        prefixes, misread = blend_prefixes(words.values(option))
        yield from misread
        for prefix in dict.fromkeys(prefixes):
            known = len(good)
            yield from check_prefix(prefix, good)
            if split:
                for data_set in good[known:]:
                    yield from check_split(split, data_set)


def check_tokenizer(words: MegatronArguments) -> Iterator[Finding]:
    """Check that the tokenizer is there."""
    model = words.value("--tokenizer-model")
    if model is None:
        return
    path = Path(model)
    if words.value("--tokenizer-type") == "HuggingFaceTokenizer":
        if not path.is_absolute():
            found = "not a path, so every rank asks Hugging Face for it"
            yield warning(model, found, "download it once")
        elif not path.is_dir():
            yield error(model, "no such directory", "download the tokenizer, or correct the path")
        elif not any((path / name).is_file() for name in _TOKENIZER_FILES):
            names = ", ".join(_TOKENIZER_FILES)
            yield error(model, f"none of {names} is in it", "download the tokenizer again")
    elif not path.exists():
        yield error(model, "no such file", "download the tokenizer, or correct the path")


def check_writable(directory: Path) -> Iterator[Finding]:
    """Create a directory and write a file in it."""
    if problem := disk.probe(directory):
        yield _unwritable(directory, problem)


def check_save(
    save: Path, pretrained: Path | None, ckpt_format: str, least: int = 0
) -> Iterator[Finding]:
    """Make room of what earlier starts left here, then check that a checkpoint can be written.

    `least` is what one takes at least, in bytes, where none tells.
    """
    for path in disk.free_leftovers(save):
        yield warning(path, "left by work that was cut short, and removed", "nothing is to do")
    if problem := disk.probe(save):
        needed = _checkpoint_size(save, pretrained, ckpt_format) if save.is_dir() else 0
        yield _unwritable(save, problem, max(least, needed))


def check_environment(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Create the directories that environment variables name; NCCL and torch do not."""
    files = [environment.get(name, "") for name in _FILES]
    cache = environment.get("TRITON_CACHE_DIR", "")
    for directory in dict.fromkeys([Path(cache), *(Path(file).parent for file in files)]):
        # NCCL puts host and process for %h and %p, so such a directory cannot be known here.
        if directory.is_absolute() and "%" not in str(directory):
            yield from check_writable(directory)


def resume(
    save: Path, ckpt_format: str, facts: dict[str, object], deadline: float
) -> Iterator[Finding]:
    """Find what the run resumes from, read all of it, and let the tracker name it.

    Reading ends at the deadline of the monotonic clock.
    """
    if not save.is_dir():
        return
    judge = partial(whole.by_bytes, deadline=deadline)
    choice = checkpoints.choose(save, ckpt_format, judge)
    if choice.takes is None:
        yield from _nothing_whole(save, choice)
        return
    for name, state in choice.rejected:
        if (save / name).exists():
            yield _rejected(save / name, state, choice.takes)
    if choice.state.why:
        yield warning(choice.takes, choice.state.why, "it is resumed from")
    facts["start"] = str(choice.takes)
    if choice.takes != choice.tracker.checkpoint:
        yield _point(save, choice, choice.takes)
    try:
        checkpoints.forget_newer(save, choice.takes)
    except OSError as problem:
        yield warning(save, *disk.explain(save, problem))


def note_imported(save: Path) -> Iterator[Finding]:
    """Write down which checkpoints others put there, at the first start; see checkpoints.py."""
    try:
        checkpoints.note_imported(save)
    except OSError as problem:
        found, remedy = disk.explain(save, problem)
        yield warning(save, f"{found}, so saves get no manifests", remedy)


def _nothing_whole(save: Path, choice: Choice) -> Iterator[Finding]:
    """Refuse to begin anew where there was a checkpoint."""
    others = checkpoints.imported(save)
    own_rest = all(others is not None and name not in others for name, _ in choice.rejected)
    if choice.lost or not own_rest:
        yield error(*checkpoints.lost(save, choice))
        return
    found = "the run's first save, which did not come to its end"
    for name, _ in choice.rejected:
        yield warning(save / name, found, "the run begins anew")


def _rejected(path: Path, state: State, takes: Path) -> Finding:
    """Say that a checkpoint is not resumed from; over a newer damaged one the run would write.

    It loses its manifest then, and would pass for a save that has none yet.
    """
    ours, newer = (manifest_format.iteration_of(each.name) or 0 for each in (takes, path))
    remedy = "it is not resumed from"
    if newer > ours and state.kind == "damaged":
        try:
            remedy = f"it is now {checkpoints.set_aside(path)}; remove it yourself"
        except OSError as problem:
            remedy = f"{remedy}; {disk.explain(path, problem)[0]}"
    return warning(path, state.why, remedy)


def _point(save: Path, choice: Choice, takes: Path) -> Finding:
    """Let the tracker name what is taken; Megatron takes nothing else."""
    file, found = save / checkpoints.TRACKER, _describe(choice.tracker)
    if choice.tracker.state == "good":
        found = f"{takes.name} was finished after it was written"
    try:
        checkpoints.point_to(save, takes)
    except OSError as problem:
        return error(file, f"{found}, and: {problem.strerror}", "repair it by hand")
    return warning(file, found, f"set to {takes.name}, the newest that can be loaded")


def check_base(
    pretrained: Path | None, ckpt_format: str, facts: dict[str, object], deadline: float
) -> Iterator[Finding]:
    """Check what a run without a checkpoint of its own starts from: base weights, or nothing."""
    if "start" in facts:
        return
    facts["start"] = "random weights"
    if pretrained is None:
        return
    base = checkpoints.read_tracker(pretrained, ckpt_format)
    found = _describe(base)
    if base.state == "good" and base.checkpoint is not None:
        state = whole.by_bytes(base.checkpoint, ckpt_format, deadline=deadline)
        facts["start"] = str(base.checkpoint)
        if state.loadable:
            return
        found = f"{base.checkpoint.name}: {state.why}"
    remedy = "convert the base weights, or correct --pretrained-checkpoint"
    yield error(pretrained, f"no base weights: {found}", remedy)


def check_space(
    save: Path, pretrained: Path | None, ckpt_format: str, least: int = 0
) -> Iterator[Finding]:
    """Warn when the next two checkpoints will not fit; `least` as for check_save."""
    needed = _CHECKPOINTS_NEEDED * max(least, _checkpoint_size(save, pretrained, ckpt_format))
    free = shutil.disk_usage(save).free
    if free < needed:
        takes = f"two checkpoints take about {disk.gigabytes(needed)}"
        remedy = f"{disk.MAKE_ROOM}, keep fewer checkpoints, or enlarge the file system"
        yield warning(save, f"{disk.gigabytes(free)} free, and {takes}", remedy)


def _checkpoint_size(save: Path, pretrained: Path | None, ckpt_format: str) -> int:
    there = checkpoints.loadable(save, ckpt_format)
    if there:
        return checkpoints.size_bytes(there[max(there)])
    base = checkpoints.read_tracker(pretrained, ckpt_format) if pretrained else None
    if base is None or base.checkpoint is None or base.state != "good":
        return 0
    return _CHECKPOINT_PER_BASE * checkpoints.size_bytes(base.checkpoint)


def _describe(tracker: Tracker) -> str:
    if tracker.state == "dangling":
        name = tracker.checkpoint.name if tracker.checkpoint else ""
        return f"it names {name}, which is missing or not whole"
    if tracker.state == "torn":
        return f"{tracker.text[:40]!r} is neither an iteration nor 'release'"
    return f"no {checkpoints.TRACKER} in it"


def _unwritable(directory: Path, problem: OSError, needed: int = 0) -> Finding:
    found, remedy = disk.explain(directory, problem, needed)
    return error(directory, f"cannot be written: {found}", remedy)
