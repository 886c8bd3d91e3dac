"""Finds the run id under which the nodes of a job can meet in etcd, and becomes the command.

etcd_run_id COMMAND [ARGUMENT...]

torchrun closes its run id when it ends, and for two hours whoever comes under that id ends with
RendezvousClosedError: a pod that restarts, or the same job again. So every start takes the newest
run id of the job that is still open, or else the next one. They are JOB.1, JOB.2, ...; the job's
name is what the training operator has put into PET_RDZV_ID.
"""

import os
import pickle
import sys
import time
from base64 import b64decode
from contextlib import suppress

from megatron_eks.programs import program
from megatron_eks.programs.program import StopError

# Where torch keeps the state of a run id, and for how long after its last change; and what the
# agents tell each other (torch 2.15, etcd_rendezvous_backend.py).
_STATES = "/torch/elastic/rendezvous"
_STATE_SECONDS = 7200
_STORE = "/torch/elastic/store"
_STORE_PREFIX = "torch.rendezvous."

# A pod of etcd that has lost its node is elsewhere by then.
_PATIENCE_SECONDS = 300.0
_PAUSE_SECONDS = 3.0
_READ_SECONDS = 10
_PORT = 2379

try:
    import etcd
    from urllib3.exceptions import HTTPError
except ImportError as missing:
    found = f"error etcd: no module {missing.name} in this image, and torchrun needs it"
    program.say(f"{found} - install python-etcd, or use runtime.rendezvous: c10d")
    sys.exit(program.EXIT_CHECK_FAILED)


def open_run_id(client: etcd.Client, job: str) -> str:
    """Return the newest run id of a job that is not closed, or the one after it."""
    # The keys first: a run has its state before its first key, so keys without are of a past run.
    keys = _children(client, _STORE)
    states = {_name(each): each for each in _children(client, _STATES)}
    for past in [each for each in keys if _run_id_of(each) not in states]:
        # torch never does, and would read it again. Unless it is new, or another node was faster.
        with suppress(etcd.EtcdKeyNotFound, etcd.EtcdCompareFailed):
            client.delete(past.key, prevIndex=past.modifiedIndex)
    numbers = [number for run, _, number in (each.rpartition(".") for each in states) if run == job]
    newest = max(map(int, filter(str.isdecimal, numbers)), default=1)
    state = states.get(f"{job}.{newest}")
    if state is None or not pickle.loads(b64decode(state.value)).closed:  # noqa: S301 -- torchrun does so too
        return f"{job}.{newest}"
    # Nodes that come a little later have to find it as well, or they would begin at 1.
    client.refresh(state.key, ttl=_STATE_SECONDS)
    return f"{job}.{newest + 1}"


def wait_for_run_id(endpoint: str, job: str) -> str:
    """Return the run id to meet under, as soon as etcd answers."""
    host, _, port = endpoint.rpartition(":")
    deadline = time.monotonic() + _PATIENCE_SECONDS
    said = ""
    while True:
        try:
            client = etcd.Client(host, int(port or _PORT), read_timeout=_READ_SECONDS)
            return open_run_id(client, job)
        except etcd.EtcdKeyNotFound:
            # The state that was just read has expired: what is there now decides.
            continue
        except (etcd.EtcdException, HTTPError) as problem:
            found = f"does not answer: {problem}"
        if time.monotonic() > deadline:
            remedy = "see that pod and Service etcd are there: platform.etcd: true, meks apply"
            raise StopError(program.EXIT_NOT_REACHABLE, f"etcd at {endpoint}", found, remedy)
        if found != said:
            said = found
            program.say(f"etcd at {endpoint} {found}; asked again for {_PATIENCE_SECONDS:.0f} s")
        time.sleep(_PAUSE_SECONDS)


def main(argv: list[str]) -> int:
    """Become the command, with the run id in its environment; return only if that fails."""
    try:
        run_id = wait_for_run_id(os.environ["PET_RDZV_ENDPOINT"], os.environ["PET_RDZV_ID"])
    except StopError as stop:
        program.say(str(stop.finding))
        return stop.code
    program.say(f"etcd: nodes meet as {run_id}")
    try:
        os.execvpe(argv[0], argv, {**os.environ, "PET_RDZV_ID": run_id})  # noqa: S606 -- what the container is for
    except OSError as problem:
        program.say(f"error {argv[0]}: {problem.strerror} - it has to be in the image")
        return program.EXIT_NOT_FOUND


def _children(client: etcd.Client, directory: str) -> list[etcd.EtcdResult]:
    try:
        return [each for each in client.read(directory).children if not each.dir]
    except etcd.EtcdKeyNotFound:
        return []


def _name(entry: etcd.EtcdResult) -> str:
    return str(entry.key.rpartition("/")[2])


def _run_id_of(entry: etcd.EtcdResult) -> str:
    """Return the run id of `torch.rendezvous.RUN_ID.ROUND/...`, which torch writes in base64."""
    key = b64decode(_name(entry)).decode()
    return key.partition("/")[0].removeprefix(_STORE_PREFIX).rpartition(".")[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
