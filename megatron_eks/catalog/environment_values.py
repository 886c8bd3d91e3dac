"""The verdict on a variable by its value alone: what the library that reads it would make of it.

Sources: those of environment.txt; torch, "ProcessGroupNCCL Environment Variables"; OpenMP 5.2,
section 21.1.2 (OMP_NUM_THREADS); libfabric, man fabric(7) (FI_LOG_LEVEL); cuBLAS, "Results
Reproducibility". Read 2026-11.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import partial

from megatron_eks.catalog.allocator import ALLOCATOR, malformed, misspelt_option
from megatron_eks.catalog.environment import (
    REMOVE,
    TABLE,
    Policy,
    Verdict,
    advised_against,
    refused,
)
from megatron_eks.catalog.tables import by_name, entries, sections

_Judge = Callable[[str], Policy | None]

_WHOLE = re.compile(r"\s*[-+]?(0[xX][0-9a-fA-F]+|\d+)")
_OFF = frozenset({"false", "no", "off"})
_CLOSE = 0.6
# What is filled in later is not known.
_UNFILLED = re.compile(r"[${]")


def by_value(name: str, value: str) -> Policy | None:
    """Judge a variable by its value, wherever it is set; None leaves it to its name."""
    if name.endswith("NCCL_ASYNC_ERROR_HANDLING") and value == "0":
        return advised_against("a lost rank leaves all others waiting, on paid nodes")
    own, filled = _OWN.get(name), _FILLED.get(name)
    judged = own(value) if own else None
    if judged or not filled or not value or _UNFILLED.search(value):
        return judged
    return filled(value)


def _form(pattern: str, verdict: str, reason: str, instead: str, value: str) -> Policy | None:
    """Judge a value that is to match a pattern; `{}` stands for the value in what to do."""
    if re.fullmatch(pattern, value):
        return None
    return Policy(Verdict(verdict), f"{value!r} is {reason}", instead.format(value))


def _values(name: str, value: str) -> Policy | None:
    """Judge a value that says something by itself."""
    for pattern, verdict, reason, *instead in _SAID[name]:
        if re.fullmatch(pattern, value):
            return Policy(Verdict(verdict), reason.format(value), *(instead or [REMOVE]))
    return None


def _whole(value: str) -> Policy | None:
    """Judge what NCCL reads as far as digits go: src/misc/param.cc, strtoll."""
    if not value or _WHOLE.fullmatch(value) or _UNFILLED.search(value):
        return None
    read = re.match(r"\s*[-+]?\d+", value)
    taken = f"reads {read[0].strip() if read else 0} of it"
    return refused(f"{value!r} is no whole number, and NCCL {taken}")


def _switch(value: str) -> Policy | None:
    """Judge a word where NCCL reads a number.

    src/misc/param.cc, ncclLoadParam: strtoll makes 0 of a word, of `true` as of `false`; only the
    parameters of src/param, of 2.30, know words, and these are none of them.
    """
    if not _whole(value):
        return None
    if value.strip().lower() in _OFF:
        reason = f"{value!r} is no number; NCCL makes 0 of every word"
        return advised_against(reason, "use 0")
    return refused(f"{value!r} is no number, and NCCL makes 0 of it", "use 0 or 1")


def _provider(value: str) -> Policy | None:
    """Judge a list of providers, which libfabric compares without case: src/fabric.c, filters."""
    return advised_against(f"{value!r} keeps NCCL off EFA") if _leaves_out_efa(value) else None


def _leaves_out_efa(value: str) -> bool:
    names = value.lower().removeprefix("^").split(",")
    return ("efa" in names) is value.startswith("^")


def off_efa(env: Mapping[str, str]) -> bool:
    """Tell whether variables take NCCL off EFA, by what `by_value` judges of each."""
    provider = env.get("FI_PROVIDER", "efa")
    own = [_values(name, env.get(name, "")) for name in ("NCCL_NET", "NCCL_NET_PLUGIN")]
    return any(own) or _leaves_out_efa(provider)


def _allocator(value: str) -> Policy | None:
    if slip := misspelt_option(value):
        wrong, right = slip
        return refused(f"torch has no option {wrong!r}", f"did you mean {right}?")
    problem = malformed(value)
    if problem is None:
        return None
    meant = value.replace("=", ":")
    instead = f"write {meant}" if meant != value and malformed(meant) is None else REMOVE
    reason = f"{problem}, and torch ends the program at it"
    return refused(reason, instead)


def _word(
    words: list[str], otherwise: str, how: list[str], old: list[str], value: str
) -> Policy | None:
    """Judge what is to be one of some words, or a number that stands for one; old ones count."""
    given = value.strip() if "any_case" in how else value
    folded = given.strip().upper()
    like = {each.upper(): each for each in words}
    known = folded in like if "any_case" in how else given in (*words, *old)
    if known or ("numbers" in how and given.isdecimal()):
        return None
    close = [like[each] for each in get_close_matches(folded, like, 1, _CLOSE)]
    remedy = f"did you mean {close[0]}?" if close else f"use {', '.join(words[:-1])} or {words[-1]}"
    verdict = Verdict.REFUSED if "ends" in how else Verdict.ADVISED_AGAINST
    return Policy(verdict, f"{value!r} is no value of it: {otherwise}", remedy)


# torch reads numbers by std::stoi: torch/csrc/distributed/c10d/Utils.hpp.
_TORCH_NUMBER = (r"\s*[-+]?\d+", "refused", "no whole number", "write the number alone")


def _filled() -> Iterator[tuple[str, _Judge]]:
    """Yield how values are judged that are written out: by words, by a form, or by a reader."""
    for name, said in by_name(TABLE["words"]).items():
        words, otherwise, how, old = [*said.split(" | "), "", ""][:4]
        yield name, partial(_word, words.split(), otherwise, how.split(), old.split())
    for name, said in by_name(TABLE["forms"]).items():
        pattern, verdict, reason, instead = said.split(" | ")
        yield name, partial(_form, pattern, verdict, reason, instead)
    of_torch = partial(_form, *_TORCH_NUMBER)
    yield from dict.fromkeys(TABLE["torch_numbers"].split(), of_torch).items()


_SAID: dict[str, list[list[str]]] = {}
for _name, _said in entries(sections("environment_values.txt")["values"]):
    _SAID.setdefault(_name, []).append(_said.split(" | "))

_OWN: dict[str, _Judge] = {
    **{name: partial(_values, name) for name in _SAID},
    **dict.fromkeys(TABLE["nccl_numbers"].split(), _whole),
    **dict.fromkeys(TABLE["nccl_switches"].split(), _switch),
    "FI_PROVIDER": _provider,
    **dict.fromkeys(ALLOCATOR, _allocator),
}
_FILLED = dict(_filled())
BY_VALUE = frozenset({*_OWN, *_FILLED})
"""The variables that are judged here."""
