"""Rules over scripts that a shell cannot read to their end, and launchers that it cannot find."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.jobs.shell_scripts import commands_of, scripts
from megatron_eks.rules.values import shown
from megatron_eks.rules.workloads import Manifest

_QUOTED = re.compile(
    r"\\[\s\S]|\$'(?:[^'\\]|\\.)*'|'[^']*'|\"(?:[^\"\\]|\\[\s\S])*\"|(?P<open>[\"'])|(?:^|(?<=\s))\#[^\n]*"
)
_BEGINS = r"(?:^|[;&|({{\n]|\b(?:then|do|else|elif))[ \t]*{word}(?=[\s;&|)}}]|$)"
_NESTED = re.compile(r"\"[^\"\n]*(\$\([^)\"\n]*|`[^`\"\n]*)\"|\$\{[^}\n]*[\"']")
_BLOCKS = (("if", "fi"), ("case", "esac"))
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "mpirun")
_PREFIX = re.compile(r"\s*(?:exec\s+)?(?:[A-Z_]+=\S*\s+)*(?P<program>[A-Za-z][\w.-]*)\s+\S")
_CLOSE = 0.85
# Words that are like a launcher, and programs of their own.
_OTHERS = frozenset({"torchx", "mpiexec", "torch-run-job"})


def unfinished(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a quote, or an if or case, that the script does not close.

    POSIX, "Shell Command Language", 2.2 and 2.9.4: the shell reads on for the end, and stops with a
    syntax error before it has run anything of that command.
    """
    for path, script in scripts(manifest):
        # A text for another program may hold anything; quotes within quotes begin anew.
        if "<<" in script or "{{" in script or _NESTED.search(script):
            continue
        opened = next((each for each in _QUOTED.finditer(script) if each["open"]), None)
        if opened is not None:
            begun = script[opened.start() :].split("\n", 1)[0]
            found = f"the quote of {shown(begun)} is never closed: the shell runs nothing of it"
            yield Finding(Code.SCRIPT, path, found, f"close it with {opened['open']}")
            continue
        plain = _QUOTED.sub(lambda match: "" if match[0].startswith("#") else "x", script)
        for begin, end in _BLOCKS:
            begins, ends = (
                len(re.findall(_BEGINS.format(word=each), plain)) for each in (begin, end)
            )
            if begins > ends:
                found = f"{begins} {begin} and {ends} {end}: a syntax error, and nothing runs"
                yield Finding(Code.SCRIPT, path, found, f"close each {begin} with {end}")


def launchers(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a program that is called nearly as a launcher is.

    PyTorch, "torchrun (Elastic Launch)": the console script is called torchrun; the shell ends with
    127, "command not found".
    """
    for pod in manifest.pods:
        for container in pod.containers:
            if container.has_launcher or container.is_init:
                continue
            for path, word in container.words[-1:] if len(container.words) > 1 else ():
                for command in commands_of(word) if "<<" not in word and " " in word else ():
                    match = _PREFIX.match(command)
                    name = match["program"] if match else ""
                    close = get_close_matches(name.lower(), _LAUNCHERS, 1, _CLOSE)
                    if close and name != close[0] and name not in _OTHERS and "--" in command:
                        found = f"{shown(name)} is no program that is known"
                        remedy = f"did you mean {close[0]}?"
                        code = Code.REFUSED_IN_POD
                        yield Finding(code, path, found, remedy, Level.WARNING)
            first = container.words[0] if container.words else None
            if first is not None and " " not in first[1]:
                close = get_close_matches(first[1], _LAUNCHERS, 1, _CLOSE)
                if close and first[1] not in {*_LAUNCHERS, *_OTHERS}:
                    found = f"{shown(first[1])} is no program that is known"
                    remedy = f"did you mean {close[0]}?"
                    yield Finding(Code.REFUSED_IN_POD, first[0], found, remedy, Level.WARNING)
