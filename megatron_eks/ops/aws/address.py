"""The address under which the internet sees this machine."""

import urllib.request

_URL = "https://checkip.amazonaws.com"
_SECONDS = 5
_LONGEST = 64


def public_address() -> str:
    """Ask AWS; raise OSError where there is no answer."""
    with urllib.request.urlopen(_URL, timeout=_SECONDS) as answer:
        return str(answer.read(_LONGEST).decode("ascii", "replace"))
