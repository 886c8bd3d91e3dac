"""`meks dev`: a pod that has what a job's pods have, and a shell in it or a way to its ports."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NoReturn

from megatron_eks.config.codes import Code
from megatron_eks.kubernetes import execution
from megatron_eks.kubernetes.client import Object
from megatron_eks.kubernetes.execution import Channel, Execution
from megatron_eks.ops.cluster.apply import refuse_unfit
from megatron_eks.ops.data.shared_pod import rendered
from megatron_eks.ops.failure import DONE, FAILED, USAGE, Failure, no_such
from megatron_eks.ops.jobs import cancel, room, shell, submit
from megatron_eks.ops.kube import access, jobs, objects
from megatron_eks.ops.kube.jobs import CONTAINER, RunningJob
from megatron_eks.ops.opening import Opened
from megatron_eks.ops.output import usd
from megatron_eks.plan.cost import node_price
from megatron_eks.plan.jobs.dev import DEV_APP, DEV_CODE, DEV_PROGRAM
from megatron_eks.plan.jobs.job import JobPlan
from megatron_eks.programs.dev import CONNECTED

_SHELL = f"cd {DEV_CODE} 2>/dev/null; command -v bash >/dev/null && exec bash; exec sh"
_COMMAND = f'cd {DEV_CODE} 2>/dev/null; exec "$@"'
_SIGN = ("sh", "-c", f"until [ -e {CONNECTED} ]; do sleep 0.2; done; touch {CONNECTED}")
_SIGN_SECONDS = 60
_WAIT_SECONDS = 3600
_END_SECONDS = 15 * 60
_CHUNK_BYTES = 65536


def run(
    name: str,
    on: Opened,
    *,
    gpus: int | None,
    limits: tuple[float, float],
    port: int | None,
    command: Sequence[str],
    previews: bool,
) -> int:
    """Start it unless it is there, and connect; what is there is used as it was started.

    Without `gpus` it gets one, where the job has any; `limits` are its hours, and how many minutes
    nobody may use it.
    """
    client, console, own = on.client, on.console, f"{DEV_APP}-{name}"
    found = jobs.find(client, on.plan.platform.namespace, own)
    if found and found.manifest["metadata"].get("labels", {}).get("app") != DEV_APP:
        text, remedy = f"{own} is already another job", "rename one of the two jobs"
        raise Failure(Code.JOB_DIFFERS, text, remedy, exit_code=USAGE)
    if found and not found.ended and gpus is not None:
        has = int(room.requests(found.pod_specs[0][1]).get(room.GPU, 0))
        if has != gpus:
            text = f"--gpus {gpus}: {own} is there already, with {has}"
            remedy = f"leave --gpus out to use it, or end it first: meks cancel {own}"
            raise Failure(Code.DEV_GPUS, text, remedy, exit_code=USAGE)
    if found and found.ended:
        console.say(f"{own} has ended; starting it again")
        jobs.delete(client, found)
        cancel.wait_until_gone(client, found, _END_SECONDS, console)
        found = None
    found = found or _start(name, on, gpus, limits, previews=previews)
    if found is None:
        console.say("nothing was started")
        return FAILED
    if submit.wait(client, found, _WAIT_SECONDS, console, until_running=True):
        return FAILED
    (rank,) = jobs.ranks(found, jobs.pods_of(client, found))
    place = found.namespace, shell.pod_of(found, rank), CONTAINER
    with _present(partial(execution.run, client, *place, _SIGN, timeout=_SIGN_SECONDS)):
        if port:
            words: Sequence[str] = (*DEV_PROGRAM, "--relay", str(port))
            begin = partial(execution.start, client, *place, words, stdin=True)
            code, listener = DONE, listener_on(port)
            console.say(f"http://127.0.0.1:{port} is forwarded to the pod until Ctrl-C")
            with listener, contextlib.suppress(KeyboardInterrupt):
                serve(listener, begin)
        else:
            code = shell.run(client, on.plan, own, console, command=words_of(command))
    come = f"to reconnect: meks dev {name}; to end it: meks cancel {own}"
    console.say(f"{own} runs until it is no longer used or its hours are over; {come}")
    return code


def words_of(command: Sequence[str]) -> Sequence[str]:
    """Return what runs a command, or without one a shell, in the folder of the job's code."""
    return ("sh", "-c", _COMMAND, "sh", *command) if command else ("sh", "-c", _SHELL)


def job_named(name: str, on: Opened) -> JobPlan:
    """Return the job of a name; raise Failure if no job file has it."""
    known = {each.name: each for each in on.project.jobs}
    if name not in known:
        raise no_such(Code.JOB_NOT_FOUND, f"no job file has the name {name!r}", name, known)
    return known[name]


def _start(
    name: str, on: Opened, gpus: int | None, limits: tuple[float, float], *, previews: bool
) -> RunningJob | None:
    """Say what it costs, ask, and create it; None where the answer is no."""
    pool = job_named(name, on).pool
    there = pool.instance.gpus if pool else 0
    gpus = min(1, there) if gpus is None else gpus
    if gpus > there:
        found = f"--gpus {gpus}: the nodes of {name} have {there}"
        raise Failure(Code.DEV_GPUS, found, f"ask for 0 to {there}", exit_code=USAGE)
    text = "no GPU, on the system nodes, which are paid for anyway"
    if gpus and pool:
        node = node_price(pool.instance.name, pool.capacity.kind, on.plan)
        each = None if node is None else node * gpus / there
        whole = None if each is None else each * limits[0]
        text = f"{gpus} of {there} GPUs of a {pool.instance.name}: {usd(each)} USD an hour, at most"
        text += f" {usd(whole)}; a node that runs for it alone costs {usd(node)} an hour"
    on.console.say(f"{DEV_APP}-{name}, for {limits[0]:g} h: {text}")
    words = (f"{each:g}" for each in (gpus, *limits))
    made: Sequence[Object] = rendered(on.project.file, "dev_job", name, *words)
    refuse_unfit(made, on.access, on.project, previews=previews)
    for manifest in made:
        objects.find_own(on.client, manifest, on.plan.name)
    *beside, workload = made
    submit.look_ahead(on.client, on.project, workload, on.console)
    return submit.create(on.client, beside, workload) if on.console.confirm("Start it?") else None


@contextlib.contextmanager
def _present(tell: Callable[[], object]) -> Iterator[None]:
    """Wait until it is ready, and tell it that somebody is connected for as long as it is so."""
    try:
        tell()
    except TimeoutError as error:
        remedy = "find the reason: meks status; meks logs dev-JOB"
        raise Failure(Code.NOT_READY, str(error), remedy) from error
    left = threading.Event()

    def tell_again() -> None:
        while not left.wait(_SIGN_SECONDS):
            with contextlib.suppress(*access.ERRORS, TimeoutError):
                tell()

    threading.Thread(target=tell_again, daemon=True).start()
    try:
        yield
    finally:
        left.set()


def listener_on(port: int) -> socket.socket:
    """Listen on a port of this machine, for this machine alone. Raises Failure if it is taken."""
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        found, remedy = f"port {port} of this machine: {error.strerror}", "name a free port"
        raise Failure(Code.DEV_PORT, found, remedy) from error


def serve(listener: socket.socket, begin: Callable[[], Execution]) -> NoReturn:
    """Make each connection one of the pod: `begin` starts what carries it there."""
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_carry, args=(connection, begin), daemon=True).start()


def _carry(connection: socket.socket, begin: Callable[[], Execution]) -> None:
    # A browser asks again by itself.
    with connection, contextlib.suppress(*access.ERRORS), contextlib.closing(begin()) as begun:

        def send() -> None:
            with contextlib.suppress(OSError):
                while data := connection.recv(_CHUNK_BYTES):
                    begun.write(data)
            begun.end_input()

        threading.Thread(target=send, daemon=True).start()
        for channel, data in begun.output():
            if channel is Channel.STDOUT:
                connection.sendall(data)
