"""`meks local`: a control plane and an AWS on this machine, started, stopped and described."""

import fcntl
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict
from datetime import date
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from urllib.parse import urlsplit

from megatron_eks import DEFAULT_CLUSTER
from megatron_eks.config.codes import Code
from megatron_eks.config.outputs import CLUSTER_ANNOTATION
from megatron_eks.localcloud.aws.limits import NOT_CHECKED
from megatron_eks.localcloud.kubernetes import build
from megatron_eks.localcloud.kubernetes.settings import Settings
from megatron_eks.localcloud.kubernetes.state import (
    LOG_FILE,
    SHARED,
    STATE_FILE,
    State,
    fall,
    is_running,
    read_state,
    shared_files,
)
from megatron_eks.ops.failure import DONE, FAILED, NOT_FOUND, Failure
from megatron_eks.ops.local_watch import alerts, check_watched, write_watch
from megatron_eks.ops.opening import console_here
from megatron_eks.ops.output import formatted, picked, table

_START_SECONDS = 120
_STOP_SECONDS = 60
_POLL_SECONDS = 0.05
_TAIL_LINES = 30
_PLACES = ("kubeconfig", "aws_endpoint_url", "aws_credentials_file")

_AGAIN = "start it again, which keeps /shared: meks local up"
_NONE = "no local cluster is running - start one with: meks local up"


def run(
    action: str,
    cluster_file: Path,
    today: date,
    output: str,
    *,
    nodes: int = 0,
    empty: bool = False,
    watch: bool = False,
    yes: bool = False,
) -> int:
    """Carry out `up`, `down`, `status` or `limits` and return the exit code.

    So many `nodes` of each pool run their pods as processes; with none, all are simulated. `empty`
    leaves nodes and platform to the commands for AWS and Kubernetes, `watch` adds a Prometheus,
    and `yes` lets /shared be deleted with the cluster.
    """
    # One cluster for each user, found again by every later command.
    folder = build.cache_folder(os.environ) / "local"
    match action:
        case "up":
            folder.parent.mkdir(parents=True, exist_ok=True)
            with folder.with_suffix(".lock").open("w") as lock:
                # Of two that come at once, the second finds what the first has started.
                fcntl.flock(lock, fcntl.LOCK_EX)
                state = _up(folder, cluster_file, today, nodes=nodes, empty=empty, watch=watch)
                return _print_places(state, output) if state else FAILED
        case "down":
            return _down(folder, may_delete=yes)
        case "limits":
            lines = ("Local AWS does not check:", *(f"- {each}" for each in NOT_CHECKED))
            sys.stdout.write(formatted(output, lines, lambda: list(NOT_CHECKED)))
            return DONE
        case _:
            return _status(folder, output)


def _up(
    folder: Path, cluster_file: Path, today: date, *, nodes: int, empty: bool, watch: bool
) -> State | None:
    # These read and render; what is running is told without them.
    from megatron_eks.demo.images import stand_in_images  # noqa: PLC0415 -- as above
    from megatron_eks.demo.nodes import all_nodes  # noqa: PLC0415 -- as above
    from megatron_eks.project import GET_LOCAL, TEMPLATE, load_project  # noqa: PLC0415 -- as above
    from megatron_eks.synthesis import SynthesisError, synthesise_manifests  # noqa: PLC0415 -- as above

    if is_running(folder):
        _say("a local cluster is running already")
        state = _wait(folder, None)
        if empty and state and "AWS_ENDPOINT_URL" not in state.environment:
            # A shell that took its variables would go on with the account of its user.
            _say("it has no empty account; end it first: meks local down")
            return None
        return state
    if found := fall(folder):
        _say(f"the last one ended by itself: {found}")
    if not find_spec("moto"):
        found = "what plays AWS is not installed"
        raise Failure(Code.PROGRAM_FAILED, found, f"run: {GET_LOCAL}")
    # Any platform will do where the real one comes later, with a cluster file that is yet to be.
    missing = empty and not cluster_file.exists()
    cluster_file = TEMPLATE / DEFAULT_CLUSTER if missing else cluster_file
    # Building the parts may take minutes; what is wrong with the files is known at once.
    plan = load_project(cluster_file, today).cluster
    without = [build.SIMULATOR] if nodes else []
    kinds = {each.kind for each in plan.platform.workloads}
    kinds |= {"Workload"} if plan.platform.kueue else set()
    if watch:
        check_watched(plan, cluster_file, has_processes=nodes > 0 and not empty)
    else:
        without.append(build.PROMETHEUS)
    without += [program for kind, program in build.CONTROLLERS.items() if kind not in kinds]
    try:
        # Here and not in the background: both report on the terminal, and may take minutes or fail.
        build.programs(os.environ, _say, without=without)
        _clear(folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if kept := shared_files(folder):
            _say(f"/shared of the last one is kept: {kept}")
        # What comes into an empty account is another file's to warn of.
        synthesise_manifests(cluster_file, folder / "manifests", quiet=empty)
        if empty:
            _leave_to_any(folder / "manifests")
    except (build.BuildError, SynthesisError) as error:
        _say(str(error))
        return None
    watched = write_watch(folder, plan) if watch else ()
    settings = Settings(
        folder,
        plan.region,
        nodes=[] if empty else all_nodes(plan, nodes),
        images=stand_in_images(each for each in plan.images if each.own) if nodes else (),
        empty=empty,
        without=without,
        watch=[str(file) for file in watched],
    )
    _say("starting the control plane")
    process = settings.start()
    try:
        return _wait(folder, process)
    except BaseException:
        process.terminate()
        raise


def _leave_to_any(manifests: Path) -> None:
    """Take the cluster's name off, so that any cluster may take the objects for its own."""
    mark = re.compile(rf"^ *{CLUSTER_ANNOTATION}: .*\n", re.MULTILINE)
    for file in manifests.rglob("*.yaml"):
        file.write_text(mark.sub("", file.read_text()))


def _wait(folder: Path, process: "subprocess.Popen[bytes] | None") -> State | None:
    """Wait for a cluster that starts; return None if it does not come up."""

    def settled() -> bool:
        ended = process.poll() is not None if process else not is_running(folder)
        return ended or (folder / STATE_FILE).exists()

    console_here().wait(_START_SECONDS, _POLL_SECONDS, settled)
    if (folder / STATE_FILE).exists():
        return read_state(folder)
    lines = (folder / LOG_FILE).read_text(errors="replace").splitlines()
    _say("\n".join(["the local cluster did not start", *lines[-_TAIL_LINES:]]))
    if process:
        process.terminate()
    return None


def _down(folder: Path, *, may_delete: bool) -> int:
    if not is_running(folder):
        _say(fall(folder) or "no local cluster is running")
        return _leave(folder, may_delete=may_delete)
    if not (folder / STATE_FILE).exists():
        _say("the local cluster is still starting - try again in a few seconds")
        return FAILED
    state = read_state(folder)
    os.kill(state.pid, signal.SIGTERM)
    if not console_here().wait(_STOP_SECONDS, _POLL_SECONDS, lambda: not is_running(folder)):
        _say(f"the local cluster does not stop - see {folder / LOG_FILE}")
        return FAILED
    _say("stopped the local cluster")
    if left := [name for name, value in state.environment.items() if os.environ.get(name) == value]:
        _say(f"this shell still points at it; run: unset {' '.join(left)}")
    return _leave(folder, may_delete=may_delete)


def _leave(folder: Path, *, may_delete: bool) -> int:
    """Remove what a cluster has left, and /shared only where somebody says so."""
    _clear(folder)
    if kept := shared_files(folder):
        if not may_delete and sys.stdin.isatty():
            may_delete = console_here().confirm(f"delete its /shared too: {kept}?")
        if not may_delete:
            _say(f"its /shared is kept for the next one: {kept}")
            _say("delete it with: meks local down --yes")
            return DONE
        _say(f"deleted its /shared: {kept}")
    shutil.rmtree(folder, ignore_errors=True)
    return DONE


def _clear(folder: Path) -> None:
    """Remove all of a cluster but /shared."""
    for each in folder.iterdir() if folder.exists() else ():
        if each.name == SHARED:
            continue
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each, ignore_errors=True)
        else:
            each.unlink()


def _status(folder: Path, output: str) -> int:
    if found := fall(folder):
        _say(f"{found} - {_AGAIN}")
        return NOT_FOUND
    if not is_running(folder) or not (folder / STATE_FILE).exists():
        _say(_NONE)
        return NOT_FOUND
    state = read_state(folder)
    rows = [("supervisor", str(state.pid), "")]
    rows += [
        (name, str(state.pids.get(name, "")), str(state.ports.get(name, "")))
        for name in {**state.pids, **state.ports}
    ]
    places = (f"{name} {place}" for name, place in picked(state, *_PLACES).items())
    port = state.ports.get(build.PROMETHEUS)
    told = alerts(port) if port else ()
    lines = chain(table(("NAME", "PID", "PORT"), rows, right=(1, 2)), places, told)
    sys.stdout.write(formatted(output, lines, lambda: asdict(state)))
    return DONE


def _print_places(state: State, output: str) -> int:
    if output == "table":
        _say(f"local AWS at {state.aws_endpoint_url} - docs/local-aws.md says how to reach it")
    lines = [f"export {name}={shlex.quote(value)}" for name, value in state.environment.items()]
    if "AWS_ENDPOINT_URL" in state.environment:
        # Somebody's profile would be looked for in files that these variables hide.
        lines.insert(0, "unset AWS_PROFILE AWS_DEFAULT_PROFILE AWS_SESSION_TOKEN")
    places = picked(state, *_PLACES, "environment")
    sys.stdout.write(formatted(output, lines, lambda: places))
    return DONE


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def bring_controllers(address: str, platform: Path) -> None:
    """Let the local cluster at an address run the controllers of a platform, and no others."""
    from megatron_eks.localcloud.kubernetes.controllers import CONTROLLERS, hand_over  # noqa: PLC0415 -- slow

    folder = build.cache_folder(os.environ) / "local"
    if not is_running(folder) or urlsplit(address).port not in read_state(folder).ports.values():
        return
    wanted = {each.name for each in CONTROLLERS if each.file(platform)}
    try:
        build.programs(os.environ, _say, without={*build.SELDOM} - wanted)
        hand_over(folder, platform)
    except (build.BuildError, TimeoutError) as error:
        remedy = f"see {folder / LOG_FILE}, then run it again"
        raise Failure(Code.PROGRAM_FAILED, str(error), remedy) from error
