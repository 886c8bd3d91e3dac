"""A pod that runs one of our programs where the shared file system is mounted, and then goes."""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from megatron_eks.config.codes import Code
from megatron_eks.kubernetes.client import ApiError, Client, Object
from megatron_eks.kubernetes.connection import UnreachableError
from megatron_eks.ops.console import Console, duration
from megatron_eks.ops.failure import USAGE, Failure
from megatron_eks.ops.kube import objects, pods
from megatron_eks.ops.kube.access import ERRORS, Access
from megatron_eks.ops.kube.pods import has_ended
from megatron_eks.ops.programs import Ended, Last, Tell, interruptible
from megatron_eks.plan.jobs.pods import TEAM
from megatron_eks.project import ROOT, Project

_POLL_SECONDS = 1.0
_SILENCE_SECONDS = 300
_START_SECONDS = 900


@dataclass(frozen=True)
class SharedPod:
    """The way to the files on the shared file system: each run is a pod of its own."""

    access: Access
    project: Project
    console: Console
    claim: str
    start_seconds: float = _START_SECONDS
    image: str = ""
    """One of the user's in place of ours: a name in images.own, or a URI with a digest."""

    name = "shared"

    def run(self, program: str, args: Sequence[str], tell: Tell) -> Ended:
        """Run a program to its end and remove the pod, whatever happens."""
        client, last = self.access.client, Last(program, tell)
        with self.started(program, args) as pod:
            for line in lines(client, pod, self.console):
                last.take(line)
            return last.ended(_exit_code(_now(client, pod)))

    @contextmanager
    def started(self, program: str, args: Sequence[str]) -> Iterator[Object]:
        """Start a program, and remove its pod in the end."""
        (manifest, *beside), client = self._manifests(program, args), self.access.client
        with interruptible(), _made(client, manifest, self.console) as pod:
            for each in beside:
                # The pod waits for it, and takes it along.
                names = {key: pod["metadata"][key] for key in ("name", "uid")}
                owner = {"apiVersion": "v1", "kind": "Pod", **names}
                client.create(each | {"metadata": {**each["metadata"], "ownerReferences": [owner]}})
            _wait_for_start(client, pod, self.start_seconds, self.console)
            yield pod

    def _manifests(self, program: str, args: Sequence[str]) -> list[Object]:
        """Render the pod as the charts define it, and give it a name and an owner."""
        words = "shared_pod", self.claim, self.image, program, *args
        team = self.project.cluster.platform.team
        manifest, *beside = rendered(self.project.file, *words, team=team)
        if objects.previews([manifest]) and not self.access.is_local:
            found = "no image with a digest is known, and the pod on the file system runs one"
            remedy = "meks build; or, if it is built: meks outputs"
            raise Failure(Code.PREVIEW_REFUSED, found, remedy, exit_code=USAGE)
        metadata = manifest["metadata"]
        metadata["name"] += f"-{secrets.token_hex(4)}"
        for each in beside:
            own = f"{metadata['name']}-files"
            for volume in manifest["spec"]["volumes"]:
                if volume.get("configMap", {}).get("name") == each["metadata"]["name"]:
                    volume["configMap"]["name"] = own
            each["metadata"]["name"] = own
        for each in (manifest, *beside):
            objects.mark(each, self.project.cluster.name)
        objects.check_namespace(
            self.access.client, metadata["namespace"], self.project.cluster.name
        )
        return [manifest, *beside]


def rendered(cluster_file: Path, module: str, *words: str, team: str | None = None) -> Any:  # noqa: ANN401 -- JSON
    """Ask a module of the charts, in a process of its own: cdk8s starts a Node."""
    done = subprocess.run(  # noqa: S603 -- our own entry point
        [sys.executable, "-m", f"megatron_eks.charts.training.{module}", *words],
        cwd=ROOT,
        env={**os.environ, "CLUSTER_CONFIG": str(cluster_file.resolve()), TEAM: team or ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        sys.stderr.write(done.stderr.decode(errors="replace"))
        found, remedy = "the pod cannot be rendered", "see above"
        raise Failure(Code.NOT_SYNTHESISED, found, remedy)
    return json.loads(done.stdout)


@contextmanager
def _made(client: Client, manifest: Object, console: Console) -> Iterator[Object]:
    """Create a pod and delete it in the end; the request to create it may be cut off half way."""
    name, namespace = manifest["metadata"]["name"], manifest["metadata"]["namespace"]
    try:
        yield client.create(manifest)
    finally:
        try:
            client.delete("v1", "Pod", name, namespace, missing_ok=True)
        except ERRORS as error:
            # What happened before is the cause.
            console.say(f"note: {name} could not be deleted ({error}); its deadline ends it")


def _wait_for_start(client: Client, pod: Object, seconds: float, console: Console) -> None:
    """Return when the program runs or has run; say what a pod waits for. Raises Failure."""
    said = ""

    def started() -> bool:
        nonlocal said
        now = _now(client, pod)
        if now.get("status", {}).get("phase", "Pending") != "Pending":
            return True
        name, namespace = _place(now)
        events = pods.events_of(client, namespace, "Pod", name)
        reason = pods.state(now, events).reason or "waits for a node"
        if reason != said:
            console.say(f"{name}: {reason}")
            said = reason
        return False

    if not console.wait(seconds, _POLL_SECONDS, started):
        name = pod["metadata"]["name"]
        found = f"{name} does not start within {duration(seconds)}: {said}"
        remedy = "see what the cluster lacks: meks preflight cluster; then the same command again"
        raise Failure(Code.SHARED_POD_NOT_STARTED, found, remedy)


def lines(client: Client, pod: Object, console: Console) -> Iterator[str]:
    """Yield the lines of a pod's only container until it has ended, each once."""
    name, namespace = _place(pod)
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/log"
    query = {"container": pod["spec"]["containers"][0]["name"], "follow": "true"}
    read = 0
    while True:
        is_last = has_ended(_now(client, pod))
        try:
            for number, raw in enumerate(client.stream(path, query, _SILENCE_SECONDS)):
                # After a cut the server begins anew; half a line comes again, whole.
                if number < read or not (raw.endswith(b"\n") or is_last):
                    continue
                read += 1
                yield raw.decode(errors="replace").rstrip("\r\n")
        except UnreachableError:
            # Cut off, or silent for too long: the next request says whether the server is there.
            is_last = False
        except ApiError as error:
            # The container is about to start, or never did.
            if error.status not in {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND}:
                raise
        if is_last:
            return
        console.clock.sleep(_POLL_SECONDS / 2)


def _now(client: Client, pod: Object) -> Object:
    """Return a pod as it is by now. Raises Failure if it went away, or is about to."""
    name, namespace = _place(pod)
    found = client.find("v1", "Pod", name, namespace)
    if found is None or (
        found["metadata"]["uid"] != pod["metadata"]["uid"]
        or ("deletionTimestamp" in found["metadata"] and not has_ended(found))
    ):
        raise _lost(name, "somebody removed it, or its node was lost")
    return found


def _exit_code(now: Object) -> int:
    """Return the program's exit code. Raises Failure if something else ended it."""
    status = now["status"]
    for each in pods.containers(now):
        ended = each["state"].get("terminated")
        if ended and not (status.get("reason") or ended.get("reason") == "OOMKilled"):
            return int(ended["exitCode"])
    raise _lost(now["metadata"]["name"], pods.state(now).reason or str(status.get("reason")))


def _lost(name: str, why: str) -> Failure:
    remedy = "run the same command again: what is done stays done"
    return Failure(Code.SHARED_POD_LOST, f"{name} ended before its program: {why}", remedy)


def _place(pod: Object) -> tuple[str, str]:
    return pod["metadata"]["name"], pod["metadata"]["namespace"]
