"""Collectives that timed out: which rank did not come.

Source: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp (2.15), the texts of the watchdog.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from megatron_eks.diagnosis.lines import Line

_TIMEOUT = re.compile(
    r"collective operation timeout: WorkNCCL\(SeqNum=(?P<number>\d+), OpType=(?P<kind>\w+)"
)
_QUEUE = re.compile(r"last enqueued (?:NCCL )?work: (?P<enqueued>-?\d+)")
_WORLD = re.compile(r"\b(?:nranks|nRanks|WORLD_SIZE|world[_ ]size)\b\s*[:=]?\s*(\d+)")
_SHOWN = 8
_FIRST = 3
"""Up to here different groups, which some versions do not name, have the same numbers."""
_KINDS = {"_ALLGATHER_BASE": "ALLGATHER", "_REDUCE_SCATTER_BASE": "REDUCE_SCATTER"}
_POINT_TO_POINT = frozenset({"SEND", "RECV", "COALESCED", "BATCHED"})
_GROUP = re.compile(r"\[PG (?:ID )?(\d+)")


@dataclass
class _Seen:
    number: int | None = None
    kind: str = ""
    enqueued: int | None = None


def tells(text: str) -> bool:
    """Say whether a line tells where a rank stands, though it shows no trouble."""
    return bool(_QUEUE.search(text) or _WORLD.search(text))


def laggard(lines: Iterable[Line]) -> str:
    """Say which rank held the others up, or nothing where the log does not tell."""
    groups: dict[str, dict[int, _Seen]] = {}
    world = 0
    for line in lines:
        if found := _WORLD.search(line.text):
            world = max(world, int(found.group(1)))
        if line.rank is None:
            continue
        group = _GROUP.search(line.text)
        seen = groups.setdefault(group.group(1) if group else "", {})
        if found := _TIMEOUT.search(line.text):
            rank = seen.setdefault(line.rank, _Seen())
            rank.number, rank.kind = int(found["number"]), found["kind"]
        if found := _QUEUE.search(line.text):
            seen.setdefault(line.rank, _Seen()).enqueued = int(found["enqueued"])
    # Of several groups that stand still, the widest: the narrower ones wait for it or with it.
    widest = max(groups.values(), key=_weight, default={})
    return _of_group(widest, world) if widest else ""


def disagree(lines: Iterable[Line]) -> str:
    """Say which ranks called what at the same place, where they did not call the same."""
    places: dict[tuple[str, int], dict[str, list[int]]] = {}
    for line in lines:
        if line.rank is None or not (found := _TIMEOUT.search(line.text)):
            continue
        group = _GROUP.search(line.text)
        key = (group.group(1) if group else "", int(found["number"]))
        ranks = places.setdefault(key, {}).setdefault(_KINDS.get(found["kind"], found["kind"]), [])
        if line.rank not in ranks:
            ranks.append(line.rank)
    for (_, number), kinds in places.items():
        if len(kinds) > 1 and number > _FIRST and not _POINT_TO_POINT.intersection(kinds):
            told = ", ".join(f"{_ranks(ranks)} {kind}" for kind, ranks in kinds.items())
            return f"at collective {number} {told}"
    return ""


def _weight(seen: dict[int, _Seen]) -> tuple[int, int]:
    return len(seen), sum(each.enqueued is not None for each in seen.values())


def _of_group(seen: dict[int, _Seen], world: int) -> str:
    queued = {rank: each.enqueued for rank, each in seen.items() if each.enqueued is not None}
    if told := _behind(queued, "had come to collective", "to"):
        return told
    timed_out = {rank: each for rank, each in seen.items() if each.number is not None}
    kinds = Counter(each.kind for each in timed_out.values())
    if len(kinds) > 1:
        rare = kinds.most_common()[-1][0]
        other = [rank for rank, each in timed_out.items() if each.kind == rare]
        return f"{_ranks(other)} called {rare}, and the others {kinds.most_common(1)[0][0]}"
    numbers = {rank: each.number for rank, each in timed_out.items() if each.number is not None}
    if told := _behind(numbers, "stood at collective", "at"):
        return told
    silent = sorted(set(range(world or max(seen) + 1)) - set(seen))
    if silent and len(silent) <= (len(seen) if world else len(seen) // 2):
        return f"{_ranks(silent)} said nothing of it, and the others waited"
    return ""


def _behind(numbers: dict[int, int], stood: str, at: str) -> str:
    least, most = min(numbers.values(), default=0), max(numbers.values(), default=0)
    behind = [rank for rank, number in numbers.items() if number == least]
    return f"{_ranks(behind)} {stood} {least} and the others {at} {most}" if least < most else ""


def _ranks(numbers: Iterable[int]) -> str:
    shown = [str(number) for number in sorted(numbers)]
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return f"rank{'s' if len(shown) > 1 else ''} {', '.join(shown[:_SHOWN])}{more}"
