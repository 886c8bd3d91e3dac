"""What a program was doing when it said no more: a stall there has causes of its own."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from megatron_eks.diagnosis.lines import Line


@dataclass(frozen=True)
class Activity:
    """One thing that a program does, and what makes ranks wait for ever in it."""

    name: str
    remedy: str
    shown: "re.Pattern[str]"
    form: str = ""
    """The signature that it is where it had not ended."""


_ALL = (
    Activity(
        "a checkpoint was being saved",
        "A save that gathers (FSDP, ZeRO-3, DCP, accelerator.save_state, model.state_dict) has to"
        " be called on all ranks: take it out of `if rank == 0` or is_main_process, and decide on"
        " all ranks alike whether to save. If all call it, see the file system and the timeout"
        " (runtime.distributed_timeout_minutes).",
        re.compile(
            r"\b[Ss]aving (the )?(\w+ ){0,3}(checkpoint|state|model|weights|optimizer|FSDP)"
            r"|entering save|[Ss]aving (.* )?to \S*(checkpoint|ckpt|state)"
            r"|[Ss]tart(ed|ing)? (to )?(save|saving|checkpoint)"
        ),
    ),
    Activity(
        "a model or checkpoint was being loaded",
        "See whether one rank reads alone or far slower than the others (a node without the cache,"
        " a full memory or file system); load on all ranks alike, and raise the timeout of the"
        " process group if reading only takes long.",
        re.compile(r"\b[Ll]oad(ing)? (the )?(\w+ ){0,3}(checkpoint|model|weights|shards)\b"),
    ),
    Activity(
        "data were being prepared",
        "Prepare the data before the run (prepare_data.py, a tokenised copy), or raise the"
        " timeout of the process group (runtime.distributed_timeout_minutes, ddp_timeout,"
        " init_process_group(timeout=...)): the other ranks wait for the rank that prepares.",
        re.compile(
            r"^(Map|Running tokenizer|Tokenizing|Generating \w+ split|Filter|Grouping texts)\b"
            r"|\b(building|creating|Building|Creating) .*(index|dataset|mapping|cache)\b"
            r"|[Tt]okeniz(e|ing) .*(dataset|data|text)"
        ),
        form="DATA_WRONG.preparing",
    ),
    Activity(
        "the model was being compiled",
        "Let all ranks compile before the first collective (a warm-up step and a barrier), keep the"
        " compile cache on each node, and raise the timeout of the process group.",
        re.compile(r"\b[Cc]ompiling (the )?(\w+ )?(model|graph|block|kernel|layer)|^AUTOTUNE "),
    ),
    Activity(
        "Megatron's fused kernels were being built",
        "Remove what an interrupted build left (rm -rf fused_kernels/build with its lock, on all"
        " nodes) and start again, build them in the image, or do without"
        " (--no-masked-softmax-fusion and the like).",
        re.compile(r"compiling and loading fused kernels"),
    ),
    Activity(
        "the model was being evaluated",
        "Let every rank evaluate as many batches as the others (drop_last, even shards), and call"
        " forward, gather and metrics that communicate on all ranks, not on rank 0 alone.",
        re.compile(
            r"\*{3,} Running (Evaluation|Prediction)|[Ee]valuating\b|\b[Rr]unning validation"
        ),
    ),
    Activity(
        "an epoch had ended",
        "Give all ranks as many batches (drop_last=True, DistributedSampler, a join context"
        " manager), and decide on all ranks alike what follows the epoch.",
        re.compile(r"\b[Ee]poch \d+(/\d+)? (completed|finished|done|ended)|[Ff]inished epoch \d+"),
    ),
)


_OVER = re.compile(
    r"[Ss]uccessfully|\b[Ss]aved\b|\b[Ll]oaded\b|100%|\b(done|finished|took)\b(?! epoch)"
)
_BAR = re.compile(r"\b\d{1,2}%\|.* \[\d+:\d\d")
_NEAR = 60


def of(text: str) -> Activity | None:
    """Return what a line says that the program does, if it says so."""
    if "ing" not in text and "poch" not in text and not text.startswith(("Map", "Filter", "AUTO")):
        return None
    return next((each for each in _ALL if each.shown.search(text)), None)


def last(lines: Sequence[Line], before: Line) -> tuple[Activity, bool] | None:
    """Return what the program said last, shortly before a line, that it does.

    With it, whether that had begun and not ended: a bar of progress tells so.
    """
    found: tuple[Activity, bool] | None = None
    for line in lines:
        if line is before:
            break
        if line.step is not None or _OVER.search(line.text):
            found = None
        elif before.number - line.number <= _NEAR:
            done = of(line.text)
            found = (done, bool(_BAR.search(line.text))) if done else found
    return found
