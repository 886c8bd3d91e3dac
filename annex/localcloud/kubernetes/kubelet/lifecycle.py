"""One container of a pod through its runs: start, end, back-off and restart."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

from megatron_eks.kubernetes.client import Object
from megatron_eks.localcloud.kubernetes.kubelet import events
from megatron_eks.localcloud.kubernetes.kubelet.context import SERVER_ERRORS, Context
from megatron_eks.localcloud.kubernetes.kubelet.creation import Creation
from megatron_eks.localcloud.kubernetes.kubelet.environment import ConfigError
from megatron_eks.localcloud.kubernetes.kubelet.images import UnknownImageError
from megatron_eks.localcloud.kubernetes.kubelet.running import ContainerProcess
from megatron_eks.localcloud.kubernetes.kubelet.status import ContainerStatus, timestamp, waiting

_NEVER = float("inf")
_CONFIG_RETRY_SECONDS = 2.0
# A kubelet's longest wait is 30 times its first (5 min and 10 s), forgotten after twice that.
_LONGEST_FACTOR = 30
_FORGOTTEN_FACTOR = 2

_MESSAGE_BYTES = 4096
_FALLBACK_BYTES, _FALLBACK_LINES = 2048, 80

Tell = Callable[[Callable[[], None]], None]
"""Has something done in the pod's own thread, to which everything here belongs."""


class Managed:
    """One container, and what is to be done with it next."""

    def __init__(
        self, context: Context, pod: Object, spec: Object, tell: Tell, *, is_init: bool
    ) -> None:
        self._context, self._pod, self._tell = context, pod, tell
        reason = "ContainerCreating"
        if not is_init and pod["spec"].get("initContainers"):
            reason = "PodInitializing"
        self.status = ContainerStatus(spec, is_init, waiting(reason), {})
        policy: str = pod["spec"]["restartPolicy"]
        # An init container never runs again after a success.
        self._policy = "OnFailure" if is_init and policy == "Always" else policy
        self.process: ContainerProcess | None = None
        """The run that goes on."""
        self.due = _NEVER
        """When it is to be started again."""
        self._delay = 0.0
        self._began = 0.0
        self._has_run = False
        self._asked = False
        self._ending = False

    @property
    def is_final(self) -> bool:
        """Say whether it has ended and will not run again."""
        code = self.status.exit_code
        if self.process or code is None:
            return False
        return self._ending or not self._restarts_after(code)

    def _restarts_after(self, code: int) -> bool:
        return self._policy == "Always" or (self._policy == "OnFailure" and code != 0)

    def start_if_due(self, creation: Creation, pod: Object) -> None:
        """Start it unless it runs, has ended for good, or must wait."""
        now = time.monotonic()
        if self.process or self.is_final or (self._asked and now < self.due):
            return
        self._pod, self._asked = pod, True
        try:
            self._start(creation, pod)
        except UnknownImageError as error:
            first = self.status.state.get("waiting", {}).get("reason") != "ErrImagePull"
            self.status.state = waiting("ErrImagePull" if first else "ImagePullBackOff", str(error))
            self.due = now + _CONFIG_RETRY_SECONDS if first else _NEVER
            events.tell(self._context, pod, "Failed", f"Failed to pull image: {error}", "Warning")
        except ConfigError as error:
            self.status.state = waiting("CreateContainerConfigError", str(error))
            self.due = now + _CONFIG_RETRY_SECONDS
            events.tell(self._context, pod, "Failed", f"Error: {error}", "Warning")
        except SERVER_ERRORS as error:
            self.status.state = waiting("CreateContainerError", str(error))
            self.due = now + _CONFIG_RETRY_SECONDS

    def _start(self, creation: Creation, pod: Object) -> None:
        spec = creation.container(self.status.spec, pod)
        status = self.status
        if self._has_run:
            status.restarts += 1
            if "terminated" in status.state:
                status.last = status.state
        self._has_run = True
        log = self._context.logs(pod) / status.name / f"{status.restarts}.log"
        said = creation.termination_log(status.name)
        process = ContainerProcess(
            spec, log, lambda ended: self._tell(lambda: self._ended(ended, log, said))
        )
        self.process = process
        status.state = {"running": {"startedAt": timestamp()}}
        self._began = time.monotonic()
        self.due = _NEVER
        events.tell(self._context, pod, "Started", f"Container started: {status.name}")
        status.started = status.ready = True

    def terminate(self) -> None:
        """Ask it to end, and never start it again."""
        self._ending = True
        if self.process:
            message = f"Stopping container {self.status.name}"
            events.tell(self._context, self._pod, "Killing", message)
            self.process.signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill its processes."""
        if self.process:
            self.process.kill()

    def _ended(self, process: ContainerProcess, log: Path, said: Path) -> None:
        self.process = None
        status, code = self.status, process.code
        reason = "Completed" if code == 0 else "Error"
        ended = {
            "exitCode": code,
            "reason": "StartError" if process.start_error else reason,
            "startedAt": status.state["running"]["startedAt"],
            "finishedAt": timestamp(),
        }
        if message := process.start_error or self._last_words(log, said, code):
            ended["message"] = message
        status.state = {"terminated": ended}
        status.started = False
        status.ready = status.is_init and code == 0
        if not self._ending and self._restarts_after(code):
            self._back_off()

    def _back_off(self) -> None:
        first = self._context.settings.back_off_seconds
        now = time.monotonic()
        if now - self._began > first * _LONGEST_FACTOR * _FORGOTTEN_FACTOR:
            self._delay = 0.0
        self.due = now + self._delay
        if self._delay:
            status, metadata = self.status, self._pod["metadata"]
            message = (
                f"back-off {self._delay:g}s restarting failed container={status.name}"
                f" pod={metadata['name']}_{metadata['namespace']}({metadata['uid']})"
            )
            status.last = status.state
            status.state = waiting("CrashLoopBackOff", message)
            events.tell(self._context, self._pod, "BackOff", message, "Warning")
        # The first restart comes at once, as on a real node.
        self._delay = min(self._delay * 2 or first, first * _LONGEST_FACTOR)

    def _last_words(self, log: Path, said: Path, code: int) -> str:
        found = said.read_text(errors="replace")[-_MESSAGE_BYTES:]
        wanted = self.status.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError"
        if not found and code and wanted:
            text = log.read_bytes().decode(errors="replace").removesuffix("\n")
            # Not splitlines: a line may hold other separators.
            lines = text.split("\n")[-_FALLBACK_LINES:] if text else []
            # Without time, stream and tag.
            found = "\n".join(line.split(" ", 3)[3] for line in lines)[-_FALLBACK_BYTES:]
        return found
