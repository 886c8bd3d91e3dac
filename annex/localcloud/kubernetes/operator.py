"""A controller of jobs, run as a process with the rights of its chart's ServiceAccount."""

import base64
import contextlib
import copy
import time
import urllib.request
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from megatron_eks.kubernetes.client import ApiError, Object
from megatron_eks.localcloud.kubernetes.processes import ProcessError

if TYPE_CHECKING:
    from megatron_eks.localcloud.kubernetes.control_plane import ControlPlane

# Not the name under which the chart itself is applied: what was added here then stays.
_MANAGER = "meks-local"

# Compiled into both (kubeflow/training-operator v1.9.4 and kubernetes-sigs/jobset v0.12.0,
# cert.go): they wait for a file of this name, and look at no more than its name.
_MOUNT = Path("/tmp/k8s-webhook-server/serving-certs")  # noqa: S108 -- compiled in
# Its webhook reads the certificate below the directory for temporary files, which is ours to give.
SERVING = Path("k8s-webhook-server", "serving-certs")

_READY_SECONDS = 60
_STARTS, _AGAIN_SECONDS = 10, 1.0


class Operator:
    """The training operator of one cluster; several clusters of a machine may have one each."""

    name = "training-operator"
    definition = ("kubeflow.org/v1", "PyTorchJob")

    def __init__(self, cluster: "ControlPlane", chart: list[Object]) -> None:
        self._cluster = cluster
        self.client = cluster.client
        """An administrator's client of the controller's cluster."""
        self._webhook_port = cluster.port(f"{self.name}-webhook")
        self._temporary = cluster.folder / self.name
        (deployment,) = (each for each in chart if each["kind"] == "Deployment")
        self._namespace: str = deployment["metadata"]["namespace"]
        # The chart without its Deployment, with a webhook that leads to the process.
        self._objects = [
            _redirected(each, self._webhook_port) for each in chart if each is not deployment
        ]
        self._pod: Object = deployment["spec"]["template"]["spec"]
        names = [each["configMap"]["name"] for each in self._pod["volumes"] if "configMap" in each]
        # Contents of what its pod would mount besides.
        self._files: dict[str, str] = {}
        for each in chart:
            if each["kind"] == "ConfigMap" and each["metadata"]["name"] in names:
                self._files |= each["data"]

    @classmethod
    def file(cls, folder: Path) -> Path | None:
        """Return the file with the controller's chart among those of a platform."""
        return next(iter(folder.glob(f"*-{cls.name}.k8s.yaml")), None)

    def install(self) -> None:
        """Apply the chart, then start the controller and return when it works."""
        metadata = [each["metadata"] for each in self._objects]
        # The namespace of jobs too, in which it gets rights: another file of the platform's has it.
        for name in sorted({each["namespace"] for each in metadata if "namespace" in each}):
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            self.client.apply(namespace, manager=_MANAGER)
        for each in self._objects:
            self.client.apply(each, manager=_MANAGER)
        wait = self._cluster.processes.wait
        wait("kube-apiserver", lambda: self.client.serves(*self.definition), _READY_SECONDS)
        wait("kube-apiserver", self._may_own, _READY_SECONDS)
        token = self.client.service_account_token(self._pod["serviceAccountName"], self._namespace)
        self._cluster.write_kubeconfig(self.name, token)
        (self._temporary / SERVING).mkdir(parents=True, exist_ok=True)
        for name, content in self._files.items():
            (self._temporary / name).write_text(content)
        self.start()

    def _may_own(self) -> bool:
        """Say whether the check of owners knows the kind by now.

        It lists all kinds when it first needs them, and then every 30 s: so install controllers
        before anything that has owners, or no job gets a pod for so long.
        """
        api_version, kind = self.definition
        owner = {"apiVersion": api_version, "kind": kind, "name": "none", "uid": "none"}
        probe = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "owner-probe",
                "namespace": self._namespace,
                "ownerReferences": [{**owner, "blockOwnerDeletion": True}],
            },
        }
        try:
            self.client.create(probe, dry_run=True)
        except ApiError as error:
            if "cannot find RESTMapping" in str(error):
                return False
            raise
        return True

    def start(self, *flags: str) -> None:
        """Start the controller, also after `stop`; flags come after the chart's own, and win."""
        _pretend_mount()
        self._run(flags)
        deadline = time.monotonic() + _READY_SECONDS
        starts = 1
        while not (self._is_healthy() and self._reviews()):
            self._write_certificate()
            if self._cluster.processes.ended(self.name) and starts < _STARTS:
                # It may ask for its certificate a moment before the file is there, or for a kind a
                # moment before the API server tells of it. A cluster would start it again, too.
                self._cluster.processes.stop(self.name)
                time.sleep(_AGAIN_SECONDS)
                self._run(flags)
                starts += 1
            self._cluster.processes.check()
            if time.monotonic() > deadline:
                tail = self._cluster.processes.tail(self.name)
                raise ProcessError(f"{self.name} was not ready after {_READY_SECONDS} s\n{tail}")
            time.sleep(0.02)

    def _is_healthy(self) -> bool:
        url = f"http://127.0.0.1:{self._cluster.ports[self.name]}/readyz"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return bool(answer.status == HTTPStatus.OK)
        except OSError:
            return False

    def _reviews(self) -> bool:
        """Say whether its webhook answers; it calls itself ready a moment before."""
        try:
            self.client.create(self._probe(), dry_run=True)
        except ApiError as error:
            return "failed calling webhook" not in str(error)
        return True

    def stop(self) -> None:
        """Stop the controller; jobs and their pods stay as they are."""
        self._cluster.processes.stop(self.name)

    def _run(self, flags: Sequence[str]) -> None:
        self._cluster.run(
            self.name,
            *self._pod["containers"][0]["args"],
            *flags,
            f"--kubeconfig={self._cluster.folder / f'{self.name}.kubeconfig'}",
            *self._own_flags(),
            environment={"MY_POD_NAMESPACE": self._namespace, "TMPDIR": str(self._temporary)},
        )

    @property
    def _health(self) -> str:
        return f"127.0.0.1:{self._cluster.port(self.name)}"

    def _own_flags(self) -> Iterator[str]:
        yield f"--health-probe-bind-address={self._health}"
        yield "--metrics-bind-address=0"
        yield f"--webhook-server-port={self._webhook_port}"
        yield f"--pytorch-init-container-template-file={self._temporary / 'initContainer.yaml'}"

    def _probe(self) -> Object:
        api_version, kind = self.definition
        metadata = {"name": "webhook-probe", "namespace": self._namespace}
        spec = self._probe_spec()
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}

    def _probe_spec(self) -> Object:
        worker = {"replicas": 1, "template": {"spec": {"containers": PROBES}}}
        return {"pytorchReplicaSpecs": {"Worker": worker}}

    def _write_certificate(self) -> None:
        """Do what a kubelet does with a Secret volume: the operator fills it, and waits for it."""
        (secret,) = (each["secret"] for each in self._pod["volumes"] if "secret" in each)
        found = self.client.get("v1", "Secret", secret["secretName"], self._namespace)
        for name, value in found.get("data", {}).items():
            file = self._temporary / SERVING / name
            partial = file.with_suffix(".partial")
            partial.touch(mode=0o600)
            partial.write_bytes(base64.b64decode(value))
            partial.replace(file)


PROBES = [{"name": "pytorch", "image": "none"}]
"""Containers of a job that a webhook is to judge."""


def _pretend_mount() -> None:
    """Make the name that controllers look for; the file is empty and serves all of a machine."""
    # Another user's directory holds the file already, or a link, which is not followed.
    with contextlib.suppress(FileExistsError, PermissionError):
        _MOUNT.mkdir(parents=True, exist_ok=True)
        (_MOUNT / "tls.crt").touch(exist_ok=False)


def operator_file(folder: Path) -> Path:
    """Return the training operator's file among those of a platform, which always has it."""
    (file,) = filter(None, [Operator.file(folder)])
    return file


def _redirected(manifest: Object, port: int) -> Object:
    """Let the API server find the webhook where it listens.

    Only fields are added that the chart leaves open, so that applying the chart again, as people
    do, takes nothing away.
    """
    changed = copy.deepcopy(manifest)
    if manifest["kind"] == "Service":
        # Not `clientConfig.url`: the certificate has the Service's name and no address in it.
        changed["spec"] |= {"type": "ExternalName", "externalName": "127.0.0.1"}
    for webhook in changed.get("webhooks", ()):
        webhook["clientConfig"]["service"]["port"] = port
    return changed
