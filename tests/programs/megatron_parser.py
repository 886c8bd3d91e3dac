"""Asks megatron-core's own parser, validation and model configuration about lists of arguments.

Reads `[[ARGUMENTS, RANKS, COMPUTE CAPABILITY, ENVIRONMENT], ...]` from stdin; writes
`[ERROR or null, ...]`.
Runs where megatron-core is installed, on a machine without a GPU.
"""

import argparse
import contextlib
import io
import json
import logging
import os
import sys
from types import SimpleNamespace
from typing import Any

import torch
from megatron.training import arguments as megatron_arguments
from megatron.training.arguments import (
    core_transformer_config_from_args,
    parse_args,
    validate_args,
)

# A thousand options take a tenth of a second to make, and are the same for every question.
_PARSER = megatron_arguments.add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))
megatron_arguments.add_megatron_arguments = lambda _: _PARSER


def main() -> None:
    """Answer every question, whatever became of the ones before."""
    # Layouts are logged where the answers go.
    logging.disable()
    with contextlib.redirect_stdout(sys.stderr):
        answers = [_refusal(*question) for question in json.load(sys.stdin)]
    sys.stdout.write(json.dumps(answers))


def _refusal(
    words: list[str], ranks: int, capability: list[int], environment: dict[str, str]
) -> str | None:
    """Return what Megatron says against the arguments, and None where it takes them."""
    os.environ.clear()
    os.environ.update(environment, WORLD_SIZE=str(ranks), RANK="0")
    major, minor = capability
    device = SimpleNamespace(major=major, minor=minor, name="GPU", total_memory=80 << 30)
    cuda: Any = torch.cuda
    cuda.get_device_properties = lambda *_: device
    cuda.get_device_capability = lambda *_: (major, minor)
    sys.argv[1:] = words
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            arguments = validate_args(parse_args(), {})
            # Its kernel is Transformer Engine's, which is asked for here already.
            arguments.apply_rope_fusion = False
            core_transformer_config_from_args(arguments)
    except SystemExit:
        return (said.getvalue().strip() or "it ends without a word").splitlines()[-1]
    except Exception as problem:  # noqa: BLE001 -- whatever Megatron refuses with
        return f"{type(problem).__name__}: {problem}"
    return None


if __name__ == "__main__":
    main()
