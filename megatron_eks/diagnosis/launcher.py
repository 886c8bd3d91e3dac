"""torchrun's report of which rank failed first.

Source: torch/distributed/elastic/multiprocessing/errors/__init__.py, `_format_failure`.
"""

import re
from collections.abc import Iterable

from megatron_eks.diagnosis.lines import Line

_FIELD = re.compile(r"^\s*(?P<key>host|rank|exitcode)\s+:\s+(?P<value>\S+)")
_FIRST = re.compile(r"Root Cause \(first observed failure\)")
_FAILED = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) ")


def tells(text: str) -> bool:
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
