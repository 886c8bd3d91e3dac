"""`meks tensorboard JOB`: TensorBoard in a pod on a system node, and a way to it from here."""

import contextlib
import json
import socket
import threading
import time
from functools import partial

from megatron_eks.catalog.program_places import PACKAGE
from megatron_eks.config.codes import Code
from megatron_eks.kubernetes import execution
from megatron_eks.kubernetes.execution import Execution
from megatron_eks.ops.data.shared_pod import SharedPod
from megatron_eks.ops.failure import DONE, NOT_FOUND, USAGE, Failure
from megatron_eks.ops.jobs import dev, records
from megatron_eks.ops.kube import access
from megatron_eks.ops.opening import Opened
from megatron_eks.plan.jobs.job import JobPlan
from megatron_eks.programs.exporter.event_files import VARIABLE

_PORT = 6006
_START_SECONDS = 300
_OPTION, _FOLDER = "--tensorboard-dir", "tensorboard"
_SCRIPT = f"""test -d "$1" || {{ echo "$1: no such folder"; exit {NOT_FOUND}; }}
exec python3 -m tensorboard.main --logdir "$1" --host 127.0.0.1 --port {_PORT} 2>&1"""


def run(name: str, on: Opened, *, folder: str | None, port: int) -> int:
    """Show a job's event files until Ctrl-C, or until its pod's hours are over; then it goes."""
    job = dev.job_named(name, on)
    chosen = folder or event_files(job)
    if chosen is None:
        found = f"jobs of kind {job.kind} write no event files that are known here"
        remedy = f"meks report {name} draws its curves; or name the folder with --dir"
        raise Failure(Code.NO_EVENT_FILES, found, remedy, exit_code=USAGE)
    place = SharedPod(*on, records.claim_of(on.project, name))
    with dev.listener_on(port) as listener, place.started("send", ["--hold"]) as pod:
        metadata, (container,) = pod["metadata"], pod["spec"]["containers"]
        at = metadata["namespace"], metadata["name"], container["name"]
        begin = partial(execution.start, on.client, *at)
        with contextlib.closing(begin(("sh", "-c", _SCRIPT, "sh", chosen))) as shown:
            _wait(shown, chosen)
            threading.Thread(target=_then_stop, args=(shown, listener), daemon=True).start()
            on.console.say(f"http://127.0.0.1:{port} shows {chosen} until Ctrl-C")
            relay = ("python3", "-m", f"{PACKAGE}.dev", "--relay", str(_PORT))
            with contextlib.suppress(KeyboardInterrupt, OSError):
                dev.serve(listener, partial(begin, relay, stdin=True))
    return DONE


def _then_stop(shown: Execution, listener: socket.socket) -> None:
    """Let go of the port once TensorBoard has ended."""
    with contextlib.suppress(OSError, *access.ERRORS):
        for _ in shown.output():
            pass
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)


def event_files(job: JobPlan) -> str | None:
    """Return where a job's program writes event files, where its plan says so."""
    if job.kind == "megatron":
        place = job.args.index(_OPTION) if _OPTION in job.args else None
        return None if place is None else job.args[place + 1]
    if job.kind == "megatron_bridge":
        (text,) = job.files.values()
        told = json.loads(text)
        own = told["overrides"].get("logger.tensorboard_dir")
        return str(own or f"{told['checkpoint']['directory']}/{_FOLDER}")
    return job.env.get(VARIABLE)


def _wait(shown: Execution, folder: str) -> None:
    """Return once it answers. Raises Failure with its last words if it ended."""
    said = b""
    try:
        for _, data in shown.output(time.monotonic() + _START_SECONDS):
            said += data
            if b"http://" in said:
                return
    except TimeoutError:
        said += b"\nit does not start"
    words = said.decode(errors="replace").strip().rpartition("\n")[2]
    remedy = "wait for the job's first steps" if shown.exit_code == NOT_FOUND else "meks build"
    raise Failure(Code.NO_EVENT_FILES, f"{folder}: {words}", remedy, exit_code=NOT_FOUND)
