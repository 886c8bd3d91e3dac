"""`meks dev`: a pod that has what a job's pods have, and a shell or Jupyter in it."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from megatron_eks.config.codes import Code
from megatron_eks.kubernetes import execution
from megatron_eks.kubernetes.client import Object
from megatron_eks.kubernetes.execution import Channel, Execution
from megatron_eks.ops.cluster.apply import refuse_unfit
from megatron_eks.ops.data.shared_pod import rendered
from megatron_eks.ops.failure import DONE, FAILED, USAGE, Failure, no_such
from megatron_eks.ops.jobs import cancel, shell, submit
from megatron_eks.ops.kube import access, jobs, objects
from megatron_eks.ops.kube.jobs import CONTAINER, RunningJob
from megatron_eks.ops.opening import Opened, Reach
from megatron_eks.ops.output import usd
from megatron_eks.plan.cost import node_price
from megatron_eks.plan.jobs.dev import (
    DEV_APP,
    DEV_CODE,
    DEV_PROGRAM,
    dev_name,
)
from megatron_eks.programs.dev import CONNECTED

_SHELL = f"cd {DEV_CODE} 2>/dev/null; command -v bash >/dev/null && exec bash; exec sh"
_SIGN_SECONDS = 60
_END_SECONDS = 15 * 60
_CHUNK_BYTES = 65536
_JUPYTER_SECONDS = 90
_PORT = 8888


@dataclass(frozen=True)
class Options:
    """What the user asked for."""

    gpus: int | None = None
    """None: one, where the job has any."""
    hours: float = 8
    idle_minutes: float = 30
    stop: bool = False
    jupyter: bool = False
    command: Sequence[str] = ()
    previews: bool = False
    wait_seconds: float = 3600


def run(reach: Reach, name: str, options: Options, on: Opened) -> int:
    """Start it unless it is there, and connect; what is there is used as it was started."""
    client, console, namespace = on.client, on.console, on.plan.platform.namespace
    found = jobs.find(client, namespace, dev_name(name))
    if found is not None and found.manifest["metadata"].get("labels", {}).get("app") != DEV_APP:
        text, remedy = f"{found.name} is a job of jobs/", "rename one of the two jobs"
        raise Failure(Code.JOB_DIFFERS, text, remedy, exit_code=USAGE)
    if options.stop:
        return cancel.run(client, on.plan, dev_name(name), _END_SECONDS, console)
    if found is not None and found.ended:
        console.say(f"{found.name} has ended, and is started anew")
        jobs.delete(client, found)
        cancel.wait_until_gone(client, found, _END_SECONDS, console)
        found = None
    found = found or _start(reach, name, options, on)
    if found is None:
        console.say("nothing was started")
        return FAILED
    if submit.wait(client, found, options.wait_seconds, console, until_running=True):
        return FAILED
    with _present(on, found):
        code = _connect(on, found, options)
    now = jobs.find(client, namespace, found.name)
    if now is None or now.ended:
        console.say(f"{found.name} has ended; why: meks logs {found.name}")
    else:
        come = f"to come back: meks dev {name}; to end it: meks dev {name} --stop"
        console.say(f"{found.name} goes on until nobody uses it, or its hours are over; {come}")
    return code


def _start(reach: Reach, name: str, options: Options, on: Opened) -> RunningJob | None:
    """Say what it costs, ask, and create it; None where the answer is no."""
    known = {each.name: each for each in on.project.jobs}
    if name not in known:
        raise no_such(Code.JOB_NOT_FOUND, f"no job file has the name {name!r}", name, known)
    pool = known[name].pool
    there = pool.instance.gpus if pool else 0
    gpus = min(1, there) if options.gpus is None else options.gpus
    if gpus > there:
        found = f"--gpus {gpus}: the nodes of {name} have {there}"
        raise Failure(Code.DEV_GPUS, found, f"ask for 0 to {there}", exit_code=USAGE)
    text = "no GPU, on the system nodes, which are paid for anyway"
    if gpus and pool:
        node = node_price(pool.instance.name, pool.capacity.kind, on.plan)
        each = None if node is None else node * gpus / there
        whole = None if each is None else each * options.hours
        text = f"{gpus} of {there} GPUs of a {pool.instance.name}: {usd(each)} USD an hour, at most"
        text += f" {usd(whole)}; a node that runs for it alone costs {usd(node)} an hour"
    on.console.say(f"{dev_name(name)}, for {options.hours:g} h: {text}")
    limits = (str(gpus), f"{options.hours:g}", f"{options.idle_minutes:g}")
    made: Sequence[Object] = rendered(reach.cluster, "dev_job", name, *limits)
    refuse_unfit(made, on.access, on.project, previews=options.previews)
    for manifest in made:
        objects.find_own(on.client, manifest, on.plan.name)
    *beside, workload = made
    submit.look_ahead(on.client, on.project, workload, on.console)
    if not on.console.confirm("Start it?"):
        return None
    return submit.create(on.client, beside, workload)


def _connect(on: Opened, job: RunningJob, options: Options) -> int:
    if options.jupyter:
        return _jupyter(on, job)
    words = tuple(options.command) or ("sh", "-c", _SHELL)
    return shell.run(on.client, on.plan, job.name, shell.Options(command=words), on.console)


@contextlib.contextmanager
def _present(on: Opened, job: RunningJob) -> Iterator[None]:
    """Tell the pod that somebody is connected; a cut or a closed laptop says that nobody is."""
    left, pod = threading.Event(), _pod(on, job)

    def tell() -> None:
        while not left.is_set():
            with contextlib.suppress(*access.ERRORS, TimeoutError):
                execution.run(on.client, job.namespace, pod, CONTAINER, ("touch", CONNECTED))
            left.wait(_SIGN_SECONDS)

    threading.Thread(target=tell, daemon=True).start()
    try:
        yield
    finally:
        left.set()


def _pod(on: Opened, job: RunningJob) -> str:
    (rank,) = jobs.ranks(job, jobs.pods_of(on.client, job))
    return shell.pod_of(job, rank)


def _jupyter(on: Opened, job: RunningJob) -> int:
    """Start Jupyter and lead a port of this machine to it, until Ctrl-C."""
    place, port = (job.namespace, _pod(on, job), CONTAINER), str(_PORT)
    words = (*DEV_PROGRAM, "--jupyter", port)
    done = execution.run(on.client, *place, words, timeout=_JUPYTER_SECONDS)
    answer = json.loads(done.text.splitlines()[-1])
    if done.exit_code:
        found, _, remedy = str(answer["findings"][0]).removeprefix("error ").partition(" - ")
        raise Failure(Code.NO_JUPYTER, found, remedy, exit_code=done.exit_code)
    words = (*DEV_PROGRAM, "--relay", port)
    with _listener() as listener:
        here = listener.getsockname()[1]
        on.console.write(f"http://127.0.0.1:{here}/lab?token={answer['token']}\n")
        on.console.say("Ctrl-C closes the way there; Jupyter and its kernels go on")
        try:
            serve(listener, partial(execution.start, on.client, *place, words, stdin=True))
        except KeyboardInterrupt:
            return DONE


def _listener() -> socket.socket:
    with contextlib.suppress(OSError):
        return socket.create_server(("127.0.0.1", _PORT))
    # Somebody else's Jupyter has it.
    return socket.create_server(("127.0.0.1", 0))


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
