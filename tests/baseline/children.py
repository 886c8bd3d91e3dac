"""A plugin of pytest that lets processes be measured that a test gives an environment of its own.

They find the product where the tests do, whatever is installed.
"""

import os
import subprocess
from typing import Any

_HANDED_ON = ("COVERAGE_PROCESS_CONFIG", "PYTHONPATH", "REACHED", "REACHED_BY")

_start = subprocess.Popen.__init__


def _start_measured(process: "subprocess.Popen[Any]", *arguments: Any, **options: Any) -> None:
    if options.get("env") is not None:
        given = {name: os.environ[name] for name in _HANDED_ON if name in os.environ}
        options["env"] = {**given, **options["env"]}
    _start(process, *arguments, **options)


def pytest_configure() -> None:
    """Add to the environment of every process that is started from here on."""
    subprocess.Popen.__init__ = _start_measured  # type: ignore[method-assign, assignment]
