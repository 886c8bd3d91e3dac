"""What is kept of a log: bounded, however long it is."""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain

from megatron_eks.diagnosis import activity, endings, frames, pods, stalls
from megatron_eks.diagnosis.index import shape
from megatron_eks.diagnosis.lines import Line, in_order, read
from megatron_eks.diagnosis.signatures import Signature, Tier, match, named, tells_nothing

_FIRST = 8
_LAST = 8
_STEPS = 64
_ERRORS = 3
_CLOSING = 3
"""Lines in which a program may say in its own words that it is done."""


@dataclass
class _Few:
    first: list[Line] = field(default_factory=list)
    last: deque[Line] = field(default_factory=lambda: deque(maxlen=_LAST))
    count: int = 0

    def add(self, line: Line) -> None:
        self.count += 1
        (self.first if len(self.first) < _FIRST else self.last).append(line)

    def __iter__(self) -> Iterator[Line]:
        return chain(self.first, self.last)


@dataclass
class Tally:
    """The lines that tell something, each with the trouble that it shows."""

    count: int = 0
    heard: dict[int | None, int] = field(default_factory=dict)
    """The number of each rank's last line."""
    answered: dict[int | None, int] = field(default_factory=dict)
    """The number of each rank's last line that says that something was done after all."""
    signs: dict[tuple[str, object], _Few] = field(default_factory=dict)
    signature_of: dict[str, Signature] = field(default_factory=dict)
    steps: dict[object, deque[Line]] = field(default_factory=dict)
    told: dict[object, deque[Line]] = field(default_factory=dict)
    ends: dict[object, deque[Line]] = field(default_factory=dict)
    """Lines of a good end, and of whole checkpoints."""
    closing: list[Line] = field(default_factory=list)
    """The last lines, where a program says in its own words that it is done."""
    errors: list[Line] = field(default_factory=list)
    """Lines that call themselves errors, and show nothing known."""
    doubts: list[Line] = field(default_factory=list)
    """Lines of what did not go well, though they call themselves no errors."""

    def ordered(self) -> list[Line]:
        """Return all that was kept, in time."""
        others = (each.values() for each in (self.steps, self.told, self.ends))
        parts: Iterator[Iterable[Line]] = chain(self.signs.values(), *others)
        kept = [*chain.from_iterable(parts)]
        known = {each.number for each in kept}
        return in_order([*kept, *(each for each in self.closing if each.number not in known)])

    def shows(self) -> dict[tuple[int, str], Signature]:
        """Return the trouble of each line, by its number and text."""
        return {
            (line.number, line.text): self.signature_of[name]
            for (name, _), few in self.signs.items()
            for line in few
        }

    def lines_of(self, signature: Signature) -> int:
        """Return how many lines show a trouble."""
        return sum(few.count for (name, _), few in self.signs.items() if name == signature.name)


def tally(raw: Iterable[str]) -> Tally:
    """Read a log."""
    kept = Tally()
    places = frames.Places()
    around = Around()
    closing: deque[Line] = deque(maxlen=_CLOSING)
    for line in read(raw):
        kept.count = kept.heard[line.rank] = line.number
        around.see(line)
        closing.append(line)
        if _keep_course(kept, line) or not line.text or line.text.isspace():
            continue
        text = places.completed(line)
        if not text:
            continue
        # What a line shows without the exception that stood before it counts if it is exact.
        alone = match(line.text, around.words) if places.joined else None
        exact = alone is not None and alone.tier < Tier.GENERIC
        found = match(text, around.words) or alone
        if found is None and places.raised(line, text):
            found = named("EXCEPTION")
        if signature := alone if exact else found:
            place = places.of(line, text) if signature.tier is Tier.GENERIC else ""
            _keep_sign(kept, signature, line, text + place)
        elif _tells(shape(line.text)):
            kept.told.setdefault((line.rank, line.pod), deque(maxlen=_STEPS)).append(line)
        elif line.progress is None:
            _keep_complaint(kept, line)
    kept.closing = [line for line in closing if endings.closes(line.text)]
    for line in places.untold():
        if signature := match(line.text):
            _keep_sign(kept, signature, line, line.text)
    return kept


def _keep_course(kept: Tally, line: Line) -> bool:
    """Keep a line about how far the run came; say whether it is one."""
    if _is(_ANSWERED, line.text, "uccess", "DONE", "omplete", "estored", "100%"):
        kept.answered[line.rank] = line.number
    if endings.tells(shape(line.text)):
        kept.ends.setdefault(line.rank, deque(maxlen=_LAST)).append(line)
        return True
    if line.progress is not None and not frames.is_not_finite(line.text):
        kept.steps.setdefault(line.rank, deque(maxlen=_STEPS)).append(line)
        return True
    return False


def _keep_sign(kept: Tally, signature: Signature, line: Line, text: str) -> None:
    kept.signature_of[signature.name] = signature
    told = line if text == line.text else replace(line, text=text)
    kept.signs.setdefault((signature.name, line.rank), _Few()).add(told)


@lru_cache(maxsize=256)
def _tells(text: str) -> bool:
    return (
        stalls.tells(text)
        or bool(pods.stage(text))
        or endings.tells_failure(text)
        or bool(activity.of(text))
    )


# Who tries again has not failed for good.
_TRIES_AGAIN = re.compile(r"\b([Rr]etry(ing)?|RETRYING|[Tt]r(y|ying) again)\b")


def _keep_complaint(kept: Tally, line: Line) -> None:
    if len(kept.errors) >= _ERRORS or _TRIES_AGAIN.search(line.text):
        return
    if frames.complains(line.text):
        if not tells_nothing(line.text):
            kept.errors.append(line)
    elif len(kept.doubts) < _ERRORS and frames.doubts(line.text) and not tells_nothing(line.text):
        kept.doubts.append(line)


_SAVING = re.compile(
    r"\b[Ss]aving (\w+ ){0,3}(checkpoint|model|state|weights|optimizer)"
    r"|, in (_?save\w*|\w+_save)\b|\b(save_file|torch\.save)\("
)
_DONE = re.compile(r"[Ss]uccessfully (saved|loaded)")
_ANSWERED = re.compile(r"\b([Ss]uccessful(ly)?|DONE|(?<!in)[Cc]ompleted?|[Rr]estored)\b|\b100%")
_LOADING = re.compile(
    r"\b[Ll]oading (\w+ ){0,3}(checkpoint|model|state|weights)|, in (_?load\w*|\w+_load)\b"
)
# nccl_ofi_net.cpp of aws-ofi-nccl; libfabric's own lines name the provider after the process.
_PROVIDER = re.compile(
    r"[Ss]elected [Pp]rovider is ([\w-]+)|^libfabric:\d+:\d+:+(efa):|(?:EFA|Unreachable remote)\b"
)


class Around:
    """The words that a signature's `around` is looked for in."""

    def __init__(self) -> None:
        self._doing = ""
        self._provider = self._stepped = ""
        self.words = ""

    def see(self, line: Line) -> None:
        """Take a line in."""
        text = line.text
        if line.progress is not None or _is(_DONE, text, "uccessfully"):
            self._doing = ""
            self._stepped = self._stepped if line.progress is None else " +"
        elif _is(_LOADING, text, "oad"):
            self._doing = "loading"
        elif _is(_SAVING, text, "av"):
            self._doing = "saving"
        if _is(_PROVIDER, text, "rovider", "libfabric:", "EFA", "Unreach") and (
            found := _PROVIDER.search(text)
        ):
            self._provider = found[1] or "efa"
        self.words = f"{self._doing} {self._provider}{self._stepped}".strip()


def _is(pattern: "re.Pattern[str]", text: str, *words: str) -> bool:
    return any(word in text for word in words) and bool(pattern.search(text))
