"""The table of known troubles, and which of them a line shows."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, lru_cache
from pathlib import Path

from megatron_eks.config.codes import Code
from megatron_eks.config.explanations import explanations
from megatron_eks.config.load import read_mapping
from megatron_eks.diagnosis.index import Index

TABLES = tuple(
    Path(__file__).with_name(f"signatures_{part}.yaml")
    for part in (
        # Deployment first: its words are exact, and others would fit its lines too.
        *("deploy", "access", "build", "gpu", "driver", "network", "storage"),
        *("training", "program", "start", "nodes", "end"),
    )
)


class Tier(IntEnum):
    """How good an explanation is; the first is the best."""

    CAUSE = 0
    POSSIBLE = 1
    GENERIC = 2
    MILD = 3
    """A cause that programs often outlive: a request tried again, a way around taken."""
    CONSEQUENCE = 4
    SLOW = 5


@dataclass(frozen=True)
class Signature:
    """How one trouble shows."""

    name: str
    """`CODE`, or `CODE.form` for one of several forms of it."""
    code: Code
    tier: Tier
    mild: bool
    """Whether programs try again after it, so that only an error raised from it ends them."""
    vague: bool
    """Whether a line close after it, of a form that is not, says it better."""
    echo: bool
    """Whether ranks see it too when another one has ended."""
    start: int
    """How far a pod has to come for it to be over; 0 if that ends nothing."""
    shown: "re.Pattern[str]"
    unless: "re.Pattern[str] | None"
    what: str
    why: str
    remedy: str

    def fits(self, text: str) -> bool:
        """Tell whether a line shows it."""
        if not self.shown.search(text):
            return False
        return self.unless is None or not self.unless.search(text)

    def tier_of(self, text: str) -> Tier:
        """Return how good an explanation this line is."""
        if self.tier > Tier.GENERIC or self.start or _RAISED.search(text):
            return self.tier
        return Tier.MILD if self.mild or _OUTLIVED.search(text) else self.tier


_XID = (
    r"\b(?:NVIDIA|Nvidia)? ?(?:Xid|XID|xid)(?: \([^)]*\))?"
    r"(?: ?[Ee]rrors?| code| event)?[ :=(\"']{0,4}"
)
"""What `%XID` in a pattern stands for: the kernel's form and that of monitors, up to the number."""


@cache
def signatures() -> tuple[Signature, ...]:
    """Return all of them, in the order in which a line is tried."""
    found = []
    for path in TABLES:
        table = read_mapping(path.read_text(encoding="utf-8"), path.name).value
        for name, entry in table.items() if isinstance(table, dict) else ():
            found.append(_signature(name, entry if isinstance(entry, dict) else {}))
    return tuple(found)


def _signature(name: str, given: Mapping[str, object]) -> Signature:
    code = Code[f"LOG_{name.partition('.')[0]}"]
    meaning = explanations()[code]
    shown, unless = (_any(given.get(key)) for key in ("lines", "unless"))
    start = given.get("start", 0)
    return Signature(
        name=name,
        code=code,
        tier=Tier[str(given.get("tier", "cause")).upper()],
        mild=bool(given.get("mild", False)),
        vague=bool(given.get("vague", False)),
        echo=bool(given.get("echo", False)),
        start=start if isinstance(start, int) else 0,
        shown=re.compile(shown),
        unless=re.compile(unless) if unless else None,
        what=str(given.get("what", meaning.what)),
        why=str(given.get("why", meaning.why)),
        remedy=str(given.get("remedy", meaning.remedy)),
    )


@lru_cache(maxsize=4096)
def match(text: str) -> Signature | None:
    """Return the trouble that a line shows, or nothing."""
    places = _index().places(text)
    if not places or _NO_TROUBLE.search(text):
        return None
    # Advice that comes with an error, on its line too, is about other errors.
    told = _ADVICE.split(text, maxsplit=1)[0]
    table = signatures()
    return next((table[each] for each in places if table[each].fits(told)), None)


_ADVICE = re.compile(
    r"CUDA kernel errors might be|For debugging consider|Compile with `?TORCH_USE_CUDA_DSA"
    r"|[Ii]f reserved but unallocated memory is large|[Ii]f reserved memory is|Consider passing"
    r"|You can suppress this exception|Search for `cuda\w+' in"
)
_NO_TROUBLE = re.compile(
    r"^\s*(Traceback \(most|During handling|The above exception|File \"|[~^]+$)"
    r"|\b(Future|Deprecation|User|Runtime|Resource)Warning\b"
)
_RAISED = re.compile(r"^\s*((\w+\.)*\w+(Error|Exception|Failed|Exit)\b|terminate called|fatal)")
_OUTLIVED = re.compile(
    r"\b([Rr]etrying|RETRYING|[Rr]etry (in|after|attempt|\d)|[Ww]ill (re)?try|[Tt]rying again"
    r"|[Ff]all(s|ing)? ?back|[Aa]ttempt \d+|[Ii]gnor(ed|ing)|[Ss]kipp(ed|ing)"
    r"|(?<!NCCL )(?<!CCOM )(DEBUG|INFO|WARN|WARNING)|non-fatal)\b"
)


@cache
def _index() -> Index:
    return Index(each.shown.pattern for each in signatures())


def _any(patterns: object) -> str:
    given = patterns if isinstance(patterns, list) else []
    return "|".join(f"(?:{each})".replace("%XID", _XID) for each in given)
