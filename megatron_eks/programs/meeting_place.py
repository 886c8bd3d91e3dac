"""Waits for the address at which ranks meet, before torchrun does.

Ranks that have lost node 0 start again at once, while its name still leads to a host that answers
nothing. torch asks for the address once and tries that one for as long as the kernel does, which is
127 s on Linux (net.ipv4.tcp_syn_retries is 6), though the name leads to another pod by then.
"""

import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence

_TRY_SECONDS, _MOST_SECONDS = 2.0, 600.0


def of(command: Sequence[str], environment: Mapping[str, str]) -> tuple[str, int] | None:
    """Return where ranks meet: by torchrun's options, or the operator's variables for them."""
    options = dict(word.partition("=")[::2] for word in command if word.startswith("--master-"))
    address = options.get("--master-addr", environment.get("PET_MASTER_ADDR"))
    port = options.get("--master-port", environment.get("PET_MASTER_PORT", ""))
    return (address, int(port)) if address and port.isdecimal() else None


def wait(place: tuple[str, int], seconds: float = _TRY_SECONDS) -> None:
    """Return when a host answers there, if only that nobody listens yet; or after ten minutes."""
    # The first process of a container ignores what it does not handle.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    deadline = time.monotonic() + _MOST_SECONDS
    while time.monotonic() < deadline:
        try:
            socket.create_connection(place, seconds).close()
        except TimeoutError:
            sys.stderr.write(f"{place[0]}: no answer yet\n")
        except OSError:
            return
        else:
            return
