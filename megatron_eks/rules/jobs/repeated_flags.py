"""Rule over options that a command line gives twice, each time with another value."""

import re
from collections.abc import Iterator

from megatron_eks.catalog.megatron_options import SINGLE
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.jobs.training_flags import PROGRAM, split_words
from megatron_eks.rules.values import shown
from megatron_eks.rules.workloads import Container, Manifest

_OF_TORCHRUN = frozenset(
    {
        *("master-addr", "master-port", "max-restarts", "nnodes", "node-rank", "nproc-per-node"),
        *("rdzv-backend", "rdzv-endpoint", "rdzv-id"),
    }
)
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?(e-?[0-9]+)?", re.IGNORECASE)
_FLAG = re.compile(r"--[A-Za-z][\w-]*(=.*)?", re.DOTALL)
# One of two branches runs, and a loop runs with each.
_BRANCHES = re.compile(r"(^|[\s;])(if|case|for|while|until)\s|\w+\+?=\(")
_ENDS = re.compile(r"&&|\|\|?|;|&|.*\.py|-m|.*;")


def repeated(manifest: Manifest) -> Iterator[Finding]:
    """Refuse an option of Megatron-LM or torchrun that is given twice with different values.

    Python, "argparse", action store: the last value counts, and nothing says so. Of other programs
    numbers alone are judged, as an option of theirs may collect words.
    """
    for pod in manifest.pods if manifest.is_job or manifest.kind == "Pod" else ():
        for container in pod.containers:
            if not _BRANCHES.search(container.line):
                yield from _of(container)


def _of(container: Container) -> Iterator[Finding]:
    first: dict[str, str] = {}
    program = "torchrun" if container.has_launcher else ""
    for path, word, after in words_of(container):
        if _ENDS.fullmatch(word):
            program, first = word, {}
        if not _FLAG.fullmatch(word):
            continue
        flag, equals, given = word.partition("=")
        value = given if equals else after
        # torchrun takes a dash for a line below, and argparse itself does not.
        name = flag[2:].replace("_", "-") if program == "torchrun" else flag[2:]
        if not value or value.startswith("-") or "$" in value:
            continue
        before = first.setdefault(name, value)
        known = PROGRAM.search(program) is not None and f"--{name}" in SINGLE
        judged = known or (program == "torchrun" and name in _OF_TORCHRUN)
        numbers = _NUMBER.fullmatch(before) and _NUMBER.fullmatch(value)
        if before != value and (judged or numbers):
            found = f"{flag} {shown(value)}, and {shown(before)} before it: the last one counts"
            level = Level.ERROR if judged else Level.WARNING
            yield Finding(Code.TRAINING_FLAG, path, found, "keep one of the two", level)


def words_of(container: Container) -> Iterator[tuple[Path, str, str]]:
    """Return each word of the command line with its place, and the word after it."""
    words = [(path, part) for path, one in container.words for part in split_words(one)]
    following = [*(word for _, word in words[1:]), ""]
    for (path, word), after in zip(words, following, strict=False):
        yield path, word, after
