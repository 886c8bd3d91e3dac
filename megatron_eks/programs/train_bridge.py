"""Trains a Megatron-Bridge recipe on one GPU, after the checks that save GPU hours.

torchrun -m megatron_eks.programs.train_bridge --recipe NAME --config FILE

NAME is a recipe of megatron.bridge.recipes, such as llama31_8b_pretrain_config. FILE is JSON with
the job file's blocks: model, parallelism, training, data, checkpoint, runtime, and overrides by
dotted name ("ddp.overlap_grad_reduce": true), which come last. A field that the recipe's
configuration does not have is an error.

The recipe's model configuration is read from the tokenizer's directory where that holds a
config.json (fetch --tokenizer brings it), so that no rank asks Hugging Face for it. Where
checkpoint.s3_uri is given, checkpoint_sync copies whole checkpoints there meanwhile.

Exit codes: 0 done, 1 failed, 2 the command line or FILE is wrong, 3 Megatron-Bridge or the recipe
is not there, 4 a check failed, 130 interrupted.
"""

import difflib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from megatron_eks.programs import program
from megatron_eks.programs.checkpoint import checkpoints
from megatron_eks.programs.program import Finding, Report, StopError, warning
from megatron_eks.programs.start import bridge_config, guard
from megatron_eks.programs.start.bridge_config import Values
from megatron_eks.programs.train_megatron import Start

_KEEP_LAST = 3
_WORDS = {
    "--split": "dataset.split",
    "--tokenizer-model": "tokenizer.tokenizer_model",
    "--save": "checkpoint.save",
    "--pretrained-checkpoint": "checkpoint.pretrained_checkpoint",
    "--ckpt-format": "checkpoint.ckpt_format",
    "--wandb-project": "logger.wandb_project",
    "--mlflow-experiment": "logger.mlflow_experiment",
    "--distributed-timeout-minutes": "dist.distributed_timeout_minutes",
}
_INSTALL = "use an image with megatron-bridge, for example nvcr.io/nvidia/nemo"


def guard_words(values: Values) -> list[str]:
    """Return the values in Megatron's words, which the guards read."""
    prefixes, weights = values.get("dataset.blend") or ([], None)
    blend = [str(each) for pair in zip(weights or (), prefixes, strict=False) for each in pair]
    words = ["--data-path", *(blend or prefixes), "--tokenizer-type", "HuggingFaceTokenizer"]
    for option, name in _WORDS.items():
        words += [option, str(values[name])] if values.get(name) else []
    return words


def find_recipe(recipes: Any, name: str) -> Callable[[], Any]:  # noqa: ANN401 -- a module of Megatron-Bridge
    """Return a recipe by name."""
    recipe: Callable[[], Any] | None = getattr(recipes, name, None)
    if callable(recipe):
        return recipe
    close = difflib.get_close_matches(name, dir(recipes), n=3)
    remedy = f"did you mean {', '.join(close)}?" if close else "see megatron.bridge.recipes"
    raise StopError(program.EXIT_NOT_FOUND, name, "no such recipe", remedy)


@contextmanager
def configuration_from(bridge: Any, directory: Path | None) -> Iterator[None]:  # noqa: ANN401 -- Megatron-Bridge's class
    """Let recipes read a model's configuration from a directory instead of from the hub."""
    if directory is None or not (directory / "config.json").is_file():
        yield
        return
    original = bridge.from_hf_pretrained
    bridge.from_hf_pretrained = lambda _name, **words: original(str(directory), **words)
    try:
        yield
    finally:
        bridge.from_hf_pretrained = original


def main(argv: Sequence[str], report: Report) -> None:
    """Check, build the recipe's configuration with the job's values, and train."""
    parser = program.parser(__doc__)
    parser.add_argument("--recipe", required=True, help="function of megatron.bridge.recipes")
    parser.add_argument("--config", type=Path, required=True, help="JSON with the job's blocks")
    guard.add_options(parser)
    options = parser.parse_args(argv)
    report.facts.update(recipe=options.recipe)
    job = _read(options.config)
    values = bridge_config.values_of(job)
    checkpoint: Mapping[str, Any] = job.get("checkpoint") or {}
    options.keep_last = checkpoint.get("keep_last", _KEEP_LAST)
    options.s3_uri = checkpoint.get("s3_uri") or None
    start = Start(options, guard_words(values), os.environ, None)
    start.check(report)
    if start.rank == 0 and start.save is not None:
        report.collect(_point_bridge(start.save, start.ckpt_format))
    if report.exit_code:
        return
    try:
        from megatron.bridge import AutoBridge, recipes  # noqa: PLC0415 -- the checks come first
        from megatron.bridge.training.gpt_step import forward_step  # noqa: PLC0415 -- as above
        from megatron.bridge.training.mixed_precision import get_mixed_precision_config  # noqa: PLC0415 -- as above
        from megatron.bridge.training.pretrain import pretrain  # noqa: PLC0415 -- as above
    except ImportError as problem:
        found = f"cannot be imported: {problem}"
        raise StopError(program.EXIT_NOT_FOUND, "Megatron-Bridge", found, _INSTALL) from problem
    recipe = find_recipe(recipes, options.recipe)
    tokenizer = values.get("tokenizer.tokenizer_model")
    with configuration_from(AutoBridge, Path(str(tokenizer)) if tokenizer else None):
        config = recipe()
    report.findings.extend(bridge_config.apply(config, values, get_mixed_precision_config))
    report.findings.extend(bridge_config.compare_model(config, job.get("model")))
    if report.exit_code:
        return
    if start.rank == 0:
        report.write_summary({"program": "train_bridge", "status": "starting"})
    start.start_companions(report)
    pretrain(config=config, forward_step_func=forward_step)
    report.facts |= start.beside.finish()


def _point_bridge(save: Path, ckpt_format: str) -> Iterator[Finding]:
    tracker = checkpoints.read_tracker(save, ckpt_format)
    if tracker.state == "good" and tracker.checkpoint is not None:
        had = (save / "latest_train_state.pt").exists()
        if checkpoints.point_bridge(save, tracker.checkpoint) and had:
            name = tracker.checkpoint.name
            yield warning(save, "its train state was another checkpoint's", f"set to {name}'s")


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as problem:
        raise StopError(program.EXIT_USAGE, path, str(problem), "write the job's blocks") from None
    if not isinstance(content, dict):
        raise StopError(program.EXIT_USAGE, path, "no JSON object", "write the job's blocks")
    return content


if __name__ == "__main__":
    sys.exit(program.run("train_bridge", main, sys.argv[1:]))
