"""The verdict on every variable that a job file sets."""

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

from megatron_eks.catalog.environment import IMAGE_VARIABLES, POLICIES, Policy, Verdict, judge
from megatron_eks.config.errors import Code, Finding, Level

if TYPE_CHECKING:
    from collections.abc import Iterator

    from megatron_eks.config.errors import Path
    from megatron_eks.config.job import Runtime

# Names that differ by a slip, not by a meaning.
_CLOSE = 0.9
# MAX_ARG_STRLEN of Linux, less the sign between name and value and the final zero: execve(2).
_LONGEST = 131072 - 2
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_VERDICTS = {
    Verdict.SET: (Code.ENVIRONMENT_REFUSED, Level.ERROR),
    Verdict.REFUSED: (Code.ENVIRONMENT_REFUSED, Level.ERROR),
    Verdict.NO_EFFECT: (Code.ENVIRONMENT_NO_EFFECT, Level.ERROR),
    Verdict.ADVISED_AGAINST: (Code.ENVIRONMENT_ADVISED_AGAINST, Level.WARNING),
}


def check_variables(runtime: "Runtime") -> "Iterator[Finding]":
    """Yield what is wrong with `runtime.env`."""
    for name, value in runtime.env.items():
        path: Path = ("runtime", "env", name)
        if not _VARIABLE.fullmatch(name):
            remedy = "use letters, digits and '_', not starting with a digit"
            yield Finding(Code.ENVIRONMENT_REFUSED, path, f"{name!r} is no variable name", remedy)
            continue
        if len(name) + len(value.encode()) > _LONGEST:
            found = f"{len(value.encode())} bytes: no program starts with a variable of that size"
            remedy = "put it into a file on the shared file system"
            yield Finding(Code.ENVIRONMENT_REFUSED, path, found, remedy)
            continue
        policy = _judge(name, value, host_network=runtime.host_network)
        if policy.verdict in _VERDICTS:
            code, level = _VERDICTS[policy.verdict]
            yield Finding(code, path, f"{name}: {policy.reason}", policy.instead, level)


def _judge(name: str, value: str, *, host_network: bool) -> Policy:
    """Judge a variable of a job file: stricter than for manifests of any origin."""
    if name in IMAGE_VARIABLES:
        return Policy(Verdict.REFUSED, IMAGE_VARIABLES[name], "remove it")
    policy = judge(name, value, host_network=host_network)
    known = {*POLICIES, *IMAGE_VARIABLES}
    if name in known or policy.verdict is not Verdict.ALLOWED:
        return policy
    upper = name.upper()
    close = [upper] if upper in known else get_close_matches(name, known, 1, _CLOSE)
    remedy = f"did you mean {close[0]}?" if close else ""
    wrong = Policy(Verdict.ADVISED_AGAINST, "no library reads this name", remedy)
    return wrong if close else policy
