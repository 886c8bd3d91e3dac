"""What a program, or torchrun, says of its end.

Of torchrun: torch/distributed/elastic/multiprocessing/errors/__init__.py, `_format_failure`.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from megatron_eks.diagnosis.lines import Line

_ENDED = re.compile(
    # Megatron-LM and Megatron-Bridge: training.py, train.py
    r"\[after training is done\] datetime"
    r"|^\s*\[?exiting program (at iteration|after [\d.]+ minutes)"
    # this project's programs; nccl-tests: src/common.cu; transformers, Lightning, torchtitan
    r'|^\{"program": "\w+", (.*, )?"status": "(done|finished)"|^# Avg bus bandwidth +: '
    r"|'train_runtime': |`Trainer\.fit` stopped: `max_\w+=\S+` reached"
    r"|(^|- INFO - )Training completed\b"
    # CodeBuild, the CDK, JobSet's event
    r"|Phase complete: BUILD State: SUCCEEDED|^ ✅  \S+( \(no changes\))?$|\sAllJobsCompleted\s"
    r"|^(\S+ )?([Ff]inished|[Cc]ompleted|[Dd]one)\b.*\bexit code 0$"
    # a build and a push of Docker; pytest
    r"|^naming to \S+( \S+)? done$|: digest: sha\d+:\w+ size: \d+$"
    r"|^=+ (?!.*\b(failed|error))\d+ passed\b.* in [\d.:]+s"
)
# The state of a Job, as Kueue's Workload has it, or of a pod; what is listed below came before.
_STATE = re.compile(
    r"^\s*Message:\s+([Jj]ob finished|[Jj]ob[Ss]et completed) successfully|^Status:\s+Succeeded\b"
)
# In a program's own words; that one part of its start is done says nothing of its end.
_CLOSES = re.compile(
    r"^(-+> ?|=+ |INFO:? )?((the |all )?(train(ing)?|run|job|program|script|conversion|evaluation"
    r"|export|download|upload|sync|copy|transfer)"
    r" (has |is |was )?(finished|completed?|done|succeeded|successful(ly)?)\b"
    r"|(all( the)? )?(ranks |workers |processes )?(are )?"
    r"(finished|done|completed?|success)( ok| successfully| [\d.]+s)?[ .!]*$"
    r"|done! now finalizing\.$"
    r"|(done|finished)( in [\d:.]+\.?$|\b.*\b0 (failed|errors)\b)"
    r"|([\w.-]+: )?(done|finished)[,:!] ((all|the) )?(results|saved|written|wrote)\b)"
    r"|\b(exit(ed)?( with)?( code:?)? |rc=)0$|\bdone in [\d.]+ ?s$",
    re.IGNORECASE,
)
_NOT_WELL = re.compile(
    r"(?<!\b0 )(?<!no )\b(fail\w*|errors?|killed|abort\w*|crash\w*|cancel\w*|timed? ?out|not)\b"
    r"(?!( \w+)?\s*[=: ]\s*0\b)|exit(ed)?( with)?( code)? [1-9-]",
    re.IGNORECASE,
)
_SAVED = re.compile(
    r"successfully saved checkpoint from iteration\s+(\d+)|saved checkpoint of step (\d+)"
)
# Whoever is done fails no more with a code of its own.
_FAILED_AFTER = re.compile(r"failed \(exitcode: [1-9]")
_STEP = re.compile(r"(?:iteration\s+|step )(\d+)/\s*(\d+)")


def closes(text: str) -> bool:
    """Say whether a line is of a good end, in whatever words, if nothing comes after it."""
    return bool(_CLOSES.search(text)) and not _NOT_WELL.search(text)


@lru_cache(maxsize=256)
def tells(text: str) -> bool:
    """Say whether a line is of a run's end, or of a checkpoint that is whole."""
    return bool(_ENDED.search(text) or _SAVED.search(text) or _STATE.search(text))


def place(ordered: Iterable[Line]) -> int:
    """Return where a run said that it was done, in lines that are in time; -1 if it did not.

    The last step and a checkpoint of it say so too. A step after it is of another run.
    """
    ended, last, before, at, state = -1, "", None, -1, False
    for at, line in enumerate(ordered):
        state = state or bool(_STATE.search(line.text))
        if _FAILED_AFTER.search(line.text):
            ended = -1
        elif _ENDED.search(line.text):
            ended = at
        elif line.progress is not None:
            # Ranks that all tell their steps tell the last one at about the same time.
            if line.progress == before:
                continue
            before = line.progress
            step = _STEP.search(line.text)
            last = step[1] if step and step[1] == step[2] else ""
            ended = -1
        elif ended < 0 and last and (saved := _SAVED.search(line.text)) and last in saved.groups():
            ended = at
    return at if state else ended


def reached(ordered: Iterable[Line]) -> str:
    """Return the last step and checkpoint in a few words, as far as lines tell them."""
    step = saved = ""
    for line in ordered:
        if line.step is not None and not _ENDED.search(line.text):
            found = _STEP.search(line.text)
            step = f"step {found[1]} of {found[2]}" if found else f"step {line.step}"
        elif found := _SAVED.search(line.text):
            saved = f"checkpoint of iteration {found[1] or found[2]}"
    return ", ".join(filter(None, (step, saved)))


_FIELD = re.compile(r"^\s*(?P<key>host|rank|exitcode)\s+:\s+(?P<value>\S+)")
_FIRST = re.compile(r"Root Cause \(first observed failure\)")
_FAILED = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) ")


def tells_failure(text: str) -> bool:
    """Say whether a line is of the report."""
    return bool(_FIELD.match(text) or _FIRST.search(text))


def first_failure(lines: Iterable[Line]) -> str:
    """Say which rank torchrun saw fail first, or nothing."""
    inside, failed = False, ""
    found: dict[str, str] = {}
    for line in lines:
        if _FIRST.search(line.text):
            inside, found = True, {}
        elif inside and (field := _FIELD.match(line.text)):
            found.setdefault(field["key"], field["value"])
        elif not failed and (ended := _FAILED.search(line.text)):
            failed = f"local rank {ended[2]} ended first, with exit code {ended[1]}"
    if "rank" not in found:
        return failed
    host = f" on {found['host']}" if "host" in found else ""
    code = f", with exit code {found['exitcode']}" if "exitcode" in found else ""
    return f"rank {found['rank']}{host} ended first{code}"
