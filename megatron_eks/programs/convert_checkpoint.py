"""Converts weights between Hugging Face's form and Megatron's, through Megatron-Bridge.

convert_checkpoint --direction import|export --source S --target T --model NAME

import: S is a Hugging Face directory, T becomes a Megatron checkpoint directory with its tracker
file, for `--pretrained-checkpoint` and `--load`. export: S is a directory in which Megatron-Bridge
has saved (or one of its iter_ directories), T becomes a Hugging Face directory. An export takes
configuration and tokenizer from the directory that the checkpoint was imported from. Before: the
source is whole and is the model that is named, T is not there, there is room. After: what was
written is whole, and every tensor of it is the source's. T appears at once at the end.

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 3 Megatron-Bridge is not installed,
4 a check failed, 130 interrupted.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from megatron_eks.programs import program
from megatron_eks.programs.checkpoint import checkpoints, manifests, whole
from megatron_eks.programs.convert import check, hf_directory
from megatron_eks.programs.convert.check import Bridge
from megatron_eks.programs.program import Finding, Report, StopError, error

Facts = dict[str, object]

_RUN_CONFIG = "run_config.yaml"
_SPARE = 1.05
_INSTALL = "use an image with megatron-bridge, for example nvcr.io/nvidia/nemo"


def check_export(source: Path, model: str, facts: Facts) -> Iterator[Finding]:
    """Check that the source is a whole checkpoint of Megatron-Bridge, and what it is based on."""
    checkpoint = iteration_directory(source)
    if checkpoint is None:
        found = "no whole checkpoint: its tracker file names none"
        yield error(source, found, "name a directory with latest_checkpointed_iteration.txt")
        return
    facts["checkpoint"] = str(checkpoint)
    facts["weight_bytes"] = checkpoints.size_bytes(checkpoint)
    if not (checkpoint / _RUN_CONFIG).is_file():
        found = f"no {_RUN_CONFIG}: Megatron-LM saved it, and Megatron-Bridge exports its own alone"
        yield error(checkpoint, found, "train with kind megatron_bridge what is to be exported")
        return
    based_on = reference_of(checkpoint)
    if based_on is None or not based_on.is_dir():
        found = f"the Hugging Face directory it is based on is not there ({based_on})"
        yield error(checkpoint, found, "fetch the model into a directory of that name")
        return
    facts["hf_config"] = str(based_on)
    yield from hf_directory.check_config(based_on, model)


def iteration_directory(source: Path) -> Path | None:
    """Return the whole checkpoint that a directory is, or that its tracker names."""
    if whole.by_sizes(source).loadable:
        return source
    tracker = checkpoints.read_tracker(source, whole.DEFAULT_FORMAT)
    return tracker.checkpoint if tracker.state == "good" else None


def reference_of(checkpoint: Path) -> Path | None:
    """Return the Hugging Face directory that a checkpoint of Megatron-Bridge names."""
    import yaml  # noqa: PLC0415 -- an import needs no YAML

    try:
        content = yaml.safe_load((checkpoint / _RUN_CONFIG).read_text())
        named = content["tokenizer"]["tokenizer_model"]
    except (yaml.YAMLError, KeyError, TypeError):
        return None
    return Path(named) if named else None


def check_target(target: Path, source: Path, size: object) -> Iterator[Finding]:
    """Check that the target is free and that there is room."""
    if target.resolve() == source.resolve():
        yield error(target, "target and source are one directory", "name another target")
    elif target.exists() and (not target.is_dir() or any(target.iterdir())):
        yield error(target, "there is something already", "name another target, or move it away")
    parent = next((path for path in target.absolute().parents if path.is_dir()), Path("/"))
    needed = _SPARE * (size if isinstance(size, int) else 0)
    free = shutil.disk_usage(parent).free
    if free < needed:
        found = f"{free / 1e9:,.1f} GB free, about {needed / 1e9:,.1f} GB needed"
        yield error(parent, found, "remove what is not needed, or enlarge the file system")


def check_result(direction: str, staging: Path, facts: Facts) -> Iterator[Finding]:
    """Check that what was written is whole, as far as its files tell."""
    if direction == "import":
        tracker = checkpoints.read_tracker(staging, whole.DEFAULT_FORMAT)
        if tracker.state != "good" or tracker.checkpoint is None:
            yield error(staging, "Megatron-Bridge wrote no whole checkpoint", "read its messages")
            return
        state = whole.seal(tracker.checkpoint)
        if not state.loadable:
            yield error(tracker.checkpoint, state.why, "convert again")
        facts["result"] = tracker.checkpoint.name
        facts["result_bytes"] = checkpoints.size_bytes(tracker.checkpoint)
        return
    result: Facts = {}
    yield from hf_directory.check_weights(staging, result)
    facts["result_bytes"] = result.get("weight_bytes")
    if not (staging / "config.json").is_file():
        yield error(staging, "Megatron-Bridge wrote no config.json", "read its messages")


def convert(options: argparse.Namespace, bridge: Bridge, staging: Path, facts: Facts) -> None:
    """Let Megatron-Bridge convert on the CPU, in one process."""
    # megatron/bridge/models/conversion/auto_bridge.py, 0.6.
    if options.direction == "import":
        import torch  # noqa: PLC0415 -- the checks need none

        with _words_of_bridge(options.source):
            # Nothing is read yet but the configuration.
            bridge.from_hf_pretrained(str(options.source))
        how = {"torch_dtype": torch.bfloat16, "device_map": "cpu"}
        with check.one_process():
            bridge.import_ckpt(str(options.source), str(staging), **how)
        return
    checkpoint, reference = str(facts["checkpoint"]), str(facts["hf_config"])
    with _words_of_bridge(reference):
        exporter = bridge.from_auto_config(checkpoint, reference)
    # It makes a group of its own.
    exporter.export_ckpt(checkpoint, str(staging), show_progress=False, strict=True)


def verify(
    options: argparse.Namespace, bridge: Bridge, staging: Path, facts: Facts
) -> Iterator[Finding]:
    """Compare the checkpoint with Hugging Face's directory, whichever of them was written."""
    importing = options.direction == "import"
    checkpoint = staging / str(facts["result"]) if importing else Path(str(facts["checkpoint"]))
    directory = options.source if importing else staging
    reader = bridge.from_auto_config(str(checkpoint), str(directory))
    with check.one_process():
        yield from check.compare_tensors(reader, checkpoint, directory, facts)


@contextmanager
def _words_of_bridge(source: object) -> Iterator[None]:
    """Say what it refuses, such as an architecture, in its own words."""
    try:
        yield
    except (ValueError, NotImplementedError) as problem:
        found = "Megatron-Bridge: " + " ".join(str(problem).split())
        remedy = "convert a model that AutoBridge.list_supported_models names"
        raise StopError(program.EXIT_CHECK_FAILED, source, found, remedy) from problem


def main(argv: Sequence[str], report: Report) -> None:
    """Check, convert beside the target, check, and make the target appear."""
    parser = program.parser(__doc__)
    parser.add_argument("--direction", choices=("import", "export"), required=True)
    parser.add_argument("--source", type=Path, required=True, help="what is converted")
    parser.add_argument("--target", type=Path, required=True, help="what it becomes")
    parser.add_argument("--model", required=True, help="a preset's name, such as llama-3.1-8b")
    options = parser.parse_args(argv)
    target: Path = options.target
    facts = report.facts
    facts.update({name: str(value) for name, value in vars(options).items()})
    check_source = hf_directory.check if options.direction == "import" else check_export
    report.collect(check_source(options.source, options.model, facts))
    report.collect(check_target(target, options.source, facts.get("weight_bytes")))
    if report.exit_code:
        return
    bridge = _load_bridge()
    staging = target.with_name(f".convert-{target.name}")
    shutil.rmtree(staging, ignore_errors=True)
    staging.parent.mkdir(parents=True, exist_ok=True)
    try:
        convert(options, bridge, staging, facts)
        report.collect(check_result(options.direction, staging, facts))
        if not report.exit_code:
            report.collect(verify(options, bridge, staging, facts))
        if report.exit_code:
            return
        manifests.sync_to_disk(staging)
        if target.exists():
            target.rmdir()
        staging.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _load_bridge() -> Bridge:
    # One process is its own group; the library asks the environment.
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0")):
        os.environ.setdefault(name, value)
    try:
        from megatron.bridge import AutoBridge  # noqa: PLC0415 -- the checks come first
    except ImportError as problem:
        found = f"cannot be imported: {problem}"
        raise StopError(program.EXIT_NOT_FOUND, "Megatron-Bridge", found, _INSTALL) from problem
    return AutoBridge


if __name__ == "__main__":
    sys.exit(program.run("convert_checkpoint", main, sys.argv[1:]))
