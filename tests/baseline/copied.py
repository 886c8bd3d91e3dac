"""A copy of the checkout whose code may be spoilt, and tests that run on it one after the other."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[2]

_INSTALLED = (
    ".venv",
    ".venv-checkov",
    ".venv-programs",
    "node_modules",
)
# What nearly every test imports, and what is no plugin of pytest: those must be imported by it.
_WARM = ("pydantic", "yaml", "jsonschema", "botocore.session", "unittest.mock", "asyncio")
_OPTIONS = ("-x", "-q", "-rfE", "--tb=line", "-pno:cacheprovider", "-ptests.baseline.children")
_GONE = re.compile(r"^ERROR: (?:file or directory )?not found: (.*)$", re.MULTILINE)
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.*)$", re.MULTILINE)


class Copy:
    """A copy of what git knows of the checkout; what is installed stays where it is."""

    def __init__(self, folder: Path) -> None:
        """Fill the folder."""
        self._folder = folder
        self._output = folder / ".output"
        self._writes = 0
        git = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        files = subprocess.run(git, cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603 -- constant words
        for name in filter(None, files.stdout.split("\0")):
            if (ROOT / name).exists():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
        for name in _INSTALLED:
            if (ROOT / name).exists() and not (folder / name).is_symlink():
                (folder / name).symlink_to((ROOT / name).resolve())
        for name in _WARM:
            import_module(name)

    def first_failure(
        self, file: str, spoilt: bytes, tests: Sequence[str], *, seconds: float
    ) -> str | None:
        """Return which of some tests fails first, or hangs, while a file has other contents."""
        path = self._folder / file
        right = path.read_bytes()
        self._write(path, spoilt)
        try:
            while tests:
                failed, gone = self._run(tests, seconds)
                if failed or not gone:
                    return failed
                # Where a function is gone, pytest names no parameters.
                tests = [test for test in tests if not {test, test.partition("[")[0]} & {*gone}]
        finally:
            self._write(path, right)
        return None

    def _write(self, path: Path, source: bytes) -> None:
        path.write_bytes(source)
        # Python tells an old compiled module by its source's size and whole seconds.
        self._writes += 1
        os.utime(path, (self._writes, self._writes))

    def _run(self, tests: Sequence[str], seconds: float) -> tuple[str | None, list[str]]:
        """Return the test that failed, or which are not there."""
        child = os.fork()
        if not child:
            self._test(tests)
        end = time.monotonic() + seconds
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            if time.monotonic() > end:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return tests[0], []
            time.sleep(0.05)
        code = os.waitstatus_to_exitcode(ended[1])
        if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return None, []
        output = self._output.read_text(errors="replace")
        if failed := _FAILED.search(output):
            named = [test for test in tests if failed[1].startswith(test)]
            return max(named, key=len, default=tests[0]), []
        prefix = f"{self._folder}/"
        gone = [gone.removeprefix(prefix) for gone in _GONE.findall(output)]
        # Without either, the tests did not even start.
        return (None, gone) if gone else (tests[0], [])

    def _test(self, tests: Sequence[str]) -> NoReturn:
        os.setsid()
        os.chdir(self._folder)
        output = os.open(self._output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(output, stream)
        for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
            del sys.modules[name]
        os.environ["PYTHONPATH"] = str(self._folder)
        sys.path[:] = [str(self._folder), *(path for path in sys.path if path != str(ROOT))]
        os._exit(pytest.main([*_OPTIONS, *tests]))
