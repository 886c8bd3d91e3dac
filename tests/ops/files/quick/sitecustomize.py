"""Python reads it at its start: programs wait for a moment where they would wait for seconds."""

import time

_sleep = time.sleep
_LONGEST_SECONDS = 0.02


def _doze(seconds: float) -> None:
    _sleep(min(seconds, _LONGEST_SECONDS))


time.sleep = _doze  # type: ignore[assignment]
