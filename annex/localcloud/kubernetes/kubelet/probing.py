"""Probes a container again and again for as long as it runs."""

import json
import subprocess
import threading
from collections.abc import Callable

from megatron_eks.kubernetes.client import Object
from megatron_eks.localcloud.kubernetes.kubelet.running import (
    ContainerProcess,
    bare_environment,
    python,
)

_PERIOD_SECONDS = 10
# For a new interpreter and the namespaces, beyond the probe's own time.
_EXTRA_SECONDS = 10


class Prober(threading.Thread):
    """One probe of one run of a container; tells each change of the verdict."""

    def __init__(
        self,
        probe: Object,
        sandbox: int,
        container: ContainerProcess,
        tell: Callable[[bool, str], None],
    ) -> None:
        super().__init__(daemon=True)
        self._probe, self._tell = probe, tell
        self._sandbox, self._container = sandbox, container
        self._stopped = threading.Event()
        self.start()

    def stop(self) -> None:
        """Probe no more."""
        self._stopped.set()

    def run(self) -> None:
        """Probe until stopped."""
        probe = self._probe
        needed = {True: probe.get("successThreshold", 1), False: probe.get("failureThreshold", 3)}
        verdict: bool | None = None
        in_a_row, last = 0, None
        delay = probe.get("initialDelaySeconds", 0)
        while not self._stopped.wait(delay):
            good, message = self._once()
            in_a_row = in_a_row + 1 if good == last else 1
            last = good
            if in_a_row >= needed[good] and good != verdict and not self._stopped.is_set():
                verdict = good
                self._tell(good, message)
            delay = probe.get("periodSeconds", _PERIOD_SECONDS)

    def _once(self) -> tuple[bool, str]:
        seconds = self._probe.get("timeoutSeconds", 1) + _EXTRA_SECONDS
        try:
            done = subprocess.run(  # noqa: S603 -- our own module
                python("probe", str(self._sandbox), str(self._container.pid)),
                input=json.dumps(self._probe),
                env=bare_environment(),
                capture_output=True,
                timeout=seconds,
                text=True,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False, "timed out"
        return done.returncode == 0, (done.stdout + done.stderr).strip()


def located(probe: Object, container: Object, address: str) -> Object:
    """Return a probe with its host, and a port's number for its name."""
    found = dict(probe)
    for kind in ("httpGet", "tcpSocket"):
        if kind in probe:
            ports = {each.get("name"): each["containerPort"] for each in container.get("ports", ())}
            target = probe[kind]
            port = ports.get(target["port"], target["port"])
            found[kind] = {**target, "port": port, "host": target.get("host") or address}
    return found
