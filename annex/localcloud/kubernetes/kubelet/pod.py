"""One pod on a node: what a kubelet does from the moment it is bound until it is gone."""

import contextlib
import queue
import shutil
import threading
import time
from collections.abc import Callable

from megatron_eks.kubernetes.client import ApiError, Object
from megatron_eks.localcloud.kubernetes.kubelet import events, status
from megatron_eks.localcloud.kubernetes.kubelet.context import (
    GONE,
    NODE_ADDRESS,
    SERVER_ERRORS,
    Context,
)
from megatron_eks.localcloud.kubernetes.kubelet.creation import Creation, host_name
from megatron_eks.localcloud.kubernetes.kubelet.lifecycle import Managed
from megatron_eks.localcloud.kubernetes.kubelet.network import GATEWAY, PREFIX
from megatron_eks.localcloud.kubernetes.kubelet.running import (
    ContainerProcess,
    SandboxError,
    SandboxProcess,
)
from megatron_eks.localcloud.kubernetes.kubelet.sandbox import Sandbox
from megatron_eks.localcloud.kubernetes.kubelet.volumes import VolumeError, VolumeMaker

_RETRY_SECONDS = 1.0


class PodWorker(threading.Thread):
    """Runs one pod. Its processes end with this thread, which waits for them."""

    def __init__(
        self, context: Context, pod: Object, finished: "Callable[[PodWorker], None]"
    ) -> None:
        super().__init__(daemon=True, name=pod["metadata"]["name"])
        self.uid: str = pod["metadata"]["uid"]
        """The pod's."""
        self._finished = finished
        self._context, self._pod = context, pod
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._folder = context.folder / "pods" / pod["metadata"]["uid"]
        self._policy: str = pod["spec"]["restartPolicy"]
        spec, tell = pod["spec"], self._inbox.put
        self._managed = [
            Managed(context, pod, each, tell, is_init=kind == "initContainers")
            for kind in ("initContainers", "containers")
            for each in spec.get(kind, ())
        ]
        self._began = status.timestamp()
        self._sandbox: SandboxProcess | None = None
        self._address = ""
        self._addresses: Object = {}
        """Those of pod and host, as its status has them."""
        self._creation: Creation | None = None
        self._retry_at = 0.0
        self._kill_at: float | None = None
        """When the containers, which are being stopped, are killed."""
        self._gone = False
        self._reported: Object = {}
        self.start()

    def update(self, pod: Object) -> None:
        """Take in a newer version of the pod; callable from any thread."""
        self._inbox.put(lambda: self._take(pod))

    def forget(self) -> None:
        """Take in that the pod is gone from the API: kill what is left of it."""
        self._inbox.put(self._vanish)

    def process(self, container: str) -> ContainerProcess | None:
        """Return the run of a container that goes on; callable from any thread."""
        found = (each.process for each in self._managed if each.status.name == container)
        return next(found, None)

    def run(self) -> None:
        """Live through the pod's life."""
        try:
            while not self._step():
                self._report(ended=False)
                self._receive()
            self._report_end()
        finally:
            for each in self._managed:
                each.kill()
            if self._sandbox:
                self._sandbox.end()
            if self._address:
                self._context.give_back(self._address)
            shutil.rmtree(self._folder, ignore_errors=True)
            self._finished(self)

    def _take(self, pod: Object) -> None:
        pod["status"] |= self._addresses
        self._pod = pod

    def _vanish(self) -> None:
        self._gone = True
        self._stop(0)

    def _step(self) -> bool:
        """Do what is due; return whether the pod has come to its end."""
        metadata = self._pod["metadata"]
        if metadata.get("deletionTimestamp"):
            # A second deletion may leave less time than the first.
            self._stop(metadata.get("deletionGracePeriodSeconds", 0))
        if self._kill_at is None and (creation := self._creation or self._prepare()):
            self._run_containers(creation)
        return self._kill_at is not None and self._finish_stopping(self._kill_at)

    def _run_containers(self, creation: Creation) -> None:
        for each in self._managed:
            if each.status.is_init and not self._pass(each, creation):
                return
        mains = [each for each in self._managed if not each.status.is_init]
        for each in mains:
            each.start_if_due(creation, self._pod)
        if all(each.is_final for each in mains):
            self._stop(0)

    def _pass(self, init: Managed, creation: Creation) -> bool:
        """Say whether the containers after an init container may start; start it if not."""
        init.start_if_due(creation, self._pod)
        if init.is_final and init.status.exit_code != 0:
            self._stop(0)
        return init.is_final and init.status.exit_code == 0

    def _stop(self, grace: float) -> None:
        deadline = time.monotonic() + grace
        if self._kill_at is not None:
            self._kill_at = min(self._kill_at, deadline)
            return
        self._kill_at = deadline
        for each in self._managed:
            each.terminate()

    def _finish_stopping(self, deadline: float) -> bool:
        running = [each for each in self._managed if each.process]
        if running and time.monotonic() >= deadline:
            for each in running:
                each.kill()
            self._kill_at = float("inf")
        return not running

    def _prepare(self) -> Creation | None:
        """Make volumes and namespaces; what does not work is tried again later."""
        if time.monotonic() < self._retry_at:
            return None
        try:
            self._creation = self._make()
        except (VolumeError, SandboxError, *SERVER_ERRORS) as error:
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            kind = "FailedMount" if isinstance(error, VolumeError) else "FailedCreatePodSandBox"
            # Right after a pod is bound, the server may not know yet what its node may read.
            if not isinstance(error, ApiError):
                events.tell(self._context, self._pod, kind, str(error), "Warning")
        return self._creation

    def _make(self) -> Creation:
        context, pod = self._context, self._pod
        if not self._address and not pod["spec"].get("hostNetwork"):
            self._address = str(context.take_address())
        address = self._address or NODE_ADDRESS
        known = {"podIP": address, "hostIP": NODE_ADDRESS}
        self._addresses = known | {f"{key}s": [{"ip": each}] for key, each in known.items()}
        pod["status"] |= self._addresses
        self._folder.mkdir(parents=True, exist_ok=True)
        volumes = VolumeMaker(context.client, pod, self._folder / "volumes", context.shared).make()
        if self._sandbox:
            self._sandbox.end()
        self._sandbox = SandboxProcess(
            Sandbox(
                network=context.settings.holder,
                host_name=host_name(pod),
                address=self._address or None,
                prefix=PREFIX,
                gateway=str(GATEWAY),
                memory=volumes.memory,
            )
        )
        creation = Creation(context, self._folder, volumes, self._sandbox.pid)
        creation.write_network_files(pod)
        return creation

    def _receive(self) -> None:
        """Wait for news or for the next thing that is due, and take in all that came."""
        now = time.monotonic()
        if self._kill_at is not None:
            due = [self._kill_at - now]
        elif self._creation:
            due = [each.due - now for each in self._managed]
        else:
            due = [self._retry_at - now]
        if self._reported == {}:
            due.append(_RETRY_SECONDS)
        seconds = min(due)
        timeout = None if seconds == float("inf") else max(0.0, seconds)
        with contextlib.suppress(queue.Empty):
            self._inbox.get(timeout=timeout)()
            while True:
                self._inbox.get_nowait()()

    def _report(self, *, ended: bool) -> None:
        """Tell the API what has changed; what cannot be told is told again later."""
        if self._gone:
            return
        now = self._status(ended=ended)
        if now == self._reported:
            return
        metadata = self._pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
        body: Object = {"metadata": {"uid": metadata["uid"]}, "status": now}
        kind = "application/strategic-merge-patch+json"
        try:
            self._context.client.request("PATCH", path, body, content_type=kind)
        except SERVER_ERRORS as error:
            self._reported = {}
            if isinstance(error, ApiError) and error.status in GONE:
                self._vanish()
        else:
            self._reported = now

    def _status(self, *, ended: bool) -> Object:
        containers = [each.status for each in self._managed]
        phase = status.phase(containers, self._policy, ended=ended)
        known = self._reported.get("conditions", self._pod["status"].get("conditions", []))
        found: Object = {
            "phase": phase,
            "startTime": self._began,
            "conditions": status.conditions(
                containers, phase, known, sandboxed=self._creation is not None
            ),
            "containerStatuses": [each.render() for each in containers if not each.is_init],
        }
        if any(each.is_init for each in containers):
            found["initContainerStatuses"] = [each.render() for each in containers if each.is_init]
        if self._creation:
            found |= self._addresses
        return found

    def _report_end(self) -> None:
        """Report the last phase, and complete a deletion."""
        while not self._gone:
            self._report(ended=True)
            if self._reported:
                break
            time.sleep(_RETRY_SECONDS)
        while self._pod["metadata"].get("deletionTimestamp") and not self._gone:
            try:
                self._context.remove(self._pod)
            except SERVER_ERRORS:
                time.sleep(_RETRY_SECONDS)
            else:
                break
