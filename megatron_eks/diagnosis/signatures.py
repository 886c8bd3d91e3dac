"""The table of known troubles, and which of them a line shows."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, lru_cache
from pathlib import Path

from megatron_eks.config.explanations import explanations
from megatron_eks.config.load import read_mapping
from megatron_eks.diagnosis.codes import LogCode
from megatron_eks.diagnosis.index import Index

TABLES = tuple(
    Path(__file__).with_name(f"signatures_{part}.yaml")
    for part in (
        *("libraries", "python", "deploy", "access", "build", "fabric", "gpu", "driver", "cuda"),
        *("network", "storage", "training", "program", "start", "nodes", "vague", "end"),
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
    code: LogCode
    tier: Tier
    certain: bool
    """Whether its words have no other cause, and a run does not go on after them."""
    mild: bool
    """Whether programs try again after it, so that only an error raised from it ends them."""
    vague: bool
    """Whether a line close after it, of a form that is not, says it better."""
    echo: bool
    """Whether ranks see it too when another one has ended."""
    start: int
    """How far a pod has to come for it to be over; 0 if that ends nothing."""
    shown: "re.Pattern[str]"
    around: "re.Pattern[str] | None"
    """What has to hold of the lines before (around.py)."""
    unless: "re.Pattern[str] | None"
    what: str
    why: str
    remedy: str

    def fits(self, text: str, around: str = "") -> bool:
        """Tell whether a line shows it, after lines that said as much as `around`."""
        if not self.shown.search(text):
            return False
        if self.around and not self.around.search(around):
            return False
        return self.unless is None or not self.unless.search(text)

    def quoted(self, text: str) -> bool:
        """Say whether its words are somebody else's, an example or a guess."""
        found = self.shown.search(text)
        return bool(found and _SENTENCE.search(text[: found.start()]))

    def what_of(self, text: str) -> str:
        """Return what it is, with what the line itself names."""
        found = self.shown.search(text)
        return (
            self.what.format(it=found["it"]) if found and "it" in found.groupdict() else self.what
        )

    def tier_of(self, text: str) -> Tier:
        """Return how good an explanation this line is."""
        if self.tier <= Tier.GENERIC and self._is_hearsay(text):
            return Tier.MILD
        if self.tier > Tier.GENERIC or self.start or _RAISED.search(text) or _IN_VAIN.search(text):
            return self.tier
        outlived = self.mild or _OUTLIVED.search(text) or of_the_shell(text)
        return Tier.MILD if outlived else self.tier

    def _is_hearsay(self, text: str) -> bool:
        """Say whether its words stand in settings or a quotation, and tell of no event here."""
        found = self.shown.search(text)
        told = text[: found.start()] if found else ""
        before, quote, _ = told.rpartition('"')
        spoken = quote and before.count('"') % 2 == 0 and _SPOKEN.search(before)
        return bool(_GIVEN.search(told) or (spoken and not _RAISED.search(text)))


_SENTENCE = re.compile(r"\b([Ii]f|would|could|might|says?|said|like|such as|e\.g\.)\s")
"""What leads to the words of somebody else, to an example or to a guess."""
# One of a list of settings, or a word in quotation marks in a sentence of a program.
_GIVEN = re.compile(
    r"[=:]\s?\[[^\[\]{}]*$|(?<!with)(?<!error)(?<=[a-z\d]) [\"'`]$"
    # what a launcher quotes of another start
    r"|^\S+:\s{2,}\| "
    # a comment in settings; a notice
    r"|^\s*[\w.-]+\s*[:=].*\s#\s|\b[Kk]nown (issue|problem|bug)s?\b"
    r"|^\s*(?!err|msg|mess|reas|std|det|cause|out|log)[a-z_][\w.]*\s*: [\"'][^\"']*$"
)
# What a program calls the words that it trains on, or is asked.
_SPOKEN = re.compile(
    r"\b(prompt|sample|question|answer|example|chat|conversation|caption)\b", re.IGNORECASE
)
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


def named(name: str) -> Signature:
    """Return the one of a name."""
    return next(each for each in signatures() if each.name == name)


def _signature(name: str, given: Mapping[str, object]) -> Signature:
    code = LogCode[name.partition(".")[0]]
    meaning = explanations()[code]
    shown, unless = (_any(given.get(key)) for key in ("lines", "unless"))
    around = given.get("around")
    # The code's reason may be another one than that of a form of it.
    why = "" if "." in name else meaning.why
    start = given.get("start", 0)
    return Signature(
        name=name,
        code=code,
        tier=Tier[str(given.get("tier", "cause")).upper()],
        **{flag: bool(given.get(flag)) for flag in ("certain", "mild", "vague", "echo")},
        start=start if isinstance(start, int) else 0,
        shown=re.compile(shown),
        around=re.compile(str(around)) if around else None,
        unless=re.compile(unless) if unless else None,
        what=str(given.get("what", meaning.what)),
        why=str(given.get("why", why)),
        remedy=str(given.get("remedy", meaning.remedy)),
    )


@lru_cache(maxsize=256)
def match(text: str, around: str = "") -> Signature | None:
    """Return the trouble that a line shows after what stood before it, or nothing."""
    places = _index().places(text)
    if not places:
        return None
    # Advice that comes with an error, on its line too, is about other errors.
    told = _ADVICE.split(text, maxsplit=1)[0]
    table = signatures()
    found = next((table[each] for each in places if table[each].fits(told, around)), None)
    return None if found is None or tells_nothing(text) else found


_ADVICE = re.compile(
    r"CUDA kernel errors might be|For debugging consider|Compile with `?TORCH_USE_CUDA_DSA"
    r"|[Ii]f reserved but unallocated memory is large|[Ii]f reserved memory is|Consider passing"
    r"|You can suppress this exception|Search for `cuda\w+' in"
)
_NO_TROUBLE = re.compile(
    r"^\s*(Traceback \(most|During handling|The above exception|File \"(?!<unknown>)|[~^]+$"
    r"|raise [A-Za-z_]|\w+: Caught \w+ in DataLoader worker process \d"
    r"|frame #\d+: |[╭╰]|│.*│\s*$)"
    r"|\b(Future|Deprecation|User|Runtime|Resource)Warning\b(?!: CUDA initialization)"
)
_HARMLESS = re.compile(
    r"Could not load dynamic library|dlerror:|cannot find -l(aio|cufile)"
    r"|^collect2: error: ld returned|^\s*df: |fatal: not a git repository"
    r"|pip's dependency resolver|can only test a child process"
    r"|slurmstepd: error: (TMPDIR|Setting TMPDIR)|[Ss]tart(ing)? (training )?from scratch"
    r"|^(INFO|DEBUG):[\w.]+:|Rounding max batch size|as both blend and blend_per_split are None"
    r"|\b[Oo]ptional\b.*\bnot (found|installed|available)\b|^(debconf|dpkg-\w+): "
    r"|run_config\.yaml not found(,| in PEFT)|[Ff]light recorder[: ]*(env|using|$)|[Tt]ry not to us"
    # kubernetes-sigs/aws-fsx-csi-driver#436: at every mount
    r"|process_param2_config\(\)|sequence parallelism must be used$"
    r"|Binding to a random available port|Disabling pre_mlp"
    r"|^\{\"program\": \"\w+\", \"status\": \"starting\""
    r"|from random$|not destroyed before we destruct|torch_extensions\S* as PyTorch extensions root"
)
"""What healthy runs print too."""
_ECHO = re.compile(
    # set -x; a prompt; Docker's steps, old and new; CodeBuild; arguments on lines of their own
    r"^\s*(\++ [\w./\"'\[{(-]|[\w.@:~/()-]{0,80}\$ (?=[\w./~\"'-])"
    r"|(\S+@\S+|\w*sh-[\d.]+)# |Step \d+/\d+ :"
    r"|(=> )?(ERROR |CACHED )?>? ?\[[\w -]*\d+/\d+\] (RUN|COPY|ADD|FROM|ENTRYPOINT|CMD|WORKDIR)\b"
    r"|(RUN|COPY|ENTRYPOINT|CMD) |(Running|Executing|Run) (the )?command\b|>{1,3} (RUN|COPY) "
    # the help of options; a variable of a pod that is described
    r"|\s+(-\w, )?--[\w-]+( [A-Z{\[]\S*)?\s{2,}\S|\s{20,}[a-z]+ [a-z]+ |\s{4,}[A-Z][A-Z\d_]+:\s+\S"
    # settings as they are printed: Config(name=value, ...)
    r"|\S*( .{0,60})?\b\w*(Config|Namespace|Args|Arguments|Options|Settings)\(\w+="
    r"|--?[\w-]+([ =]\S+)* ?\\\\$|[\w.-]+ \.{4,} |cmd = |Launching: )"
    # a compiler's call, as make and ninja show it
    r"|^\s*(\[\d+/\d+\] )?(\S*/)?(nvcc|g\+\+|gcc|c\+\+|x86_64-linux-gnu-g\+\+|cc|clang\+*) -"
    r"|^\s*(python3?|torchrun|accelerate launch|deepspeed|srun|mpirun|exec)"
    r" ([^:]|:[\d/])*\s--?\w([^:]|:[\d/])*$"
)
"""A command that is shown before it runs, or an argument: it says nothing of how it ended."""
_SAYS_MORE = re.compile(r": (Killed|command not found|not found|[Nn]o such|[Pp]ermission denied)")
# A warning first, and an error in the same line after all.
_IN_VAIN = re.compile(r"\bWARNING: .*(\b|\\n)Error: ")
_RAISED = re.compile(r"^\s*((\w+\.)*\w+(Error|Exception|Failed|Exit)\b|terminate called|fatal)")
_OUTLIVED = re.compile(
    r"\b([Rr]etrying|RETRYING|[Rr]etry (in|after|attempt|\d)|[Ww]ill (re)?try|[Tt]rying again"
    r"|^warning \S+: .* - |[Tt]raining goes on"
    r"|[Ff]all(s|ing)? ?back|[Aa]ttempt \d+|[Ii]gnor(ed|ing)|[Ss]kipp(ed|ing)"
    r"|(?<!NCCL )(?<!CCOM )(DEBUG|INFO|WARN|WARNING(?!:megatron\.core\.rerun))|non-fatal)\b"
)


_SHELL = re.compile(
    r"^\s*(/usr/bin/|/bin/)?(rm|rmdir|mkdir|ln|cp|mv|chown|chmod|touch|cat|ls|sed|tee|ulimit|sysctl"
    r"|mount|umount|ldconfig|update-alternatives|getent|id|whoami|groups|hostname|which|kill): "
    r"|^\S*(bash|sh): (line \d+: )?(\S+: )?(/dev/|/proc/|/sys/|/etc/|ulimit|cannot set terminal"
    r"|no job control|warning)|^groups: "
)


def raised(text: str) -> bool:
    """Say whether a line is an exception that ended a program."""
    return bool(_RAISED.search(text))


def of_the_shell(text: str) -> bool:
    """Say whether a line is of a small program that prepares the run, which may go on after it."""
    return bool(_SHELL.search(text))


def tells_nothing(text: str) -> bool:
    """Say whether a line is of every run, or shows a command or an argument only."""
    if _NO_TROUBLE.search(text) or _HARMLESS.search(text):
        return True
    return bool(_ECHO.search(text)) and not _SAYS_MORE.search(text)


@cache
def _index() -> Index:
    return Index(each.shown.pattern for each in signatures())


def _any(patterns: object) -> str:
    given = patterns if isinstance(patterns, list) else []
    return "|".join(f"(?:{each})".replace("%XID", _XID) for each in given)
