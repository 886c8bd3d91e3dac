"""etcd, kube-apiserver, kube-controller-manager, kube-scheduler and KWOK, on loopback only."""

import json
import secrets
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from megatron_eks.kubernetes.client import Client, connect
from megatron_eks.localcloud.kubernetes import certificates, kubeconfigs
from megatron_eks.localcloud.kubernetes.processes import Processes, free_port, listens

# Users and their groups; what they may do is for RBAC, whose built-in roles name the second and
# third. KWOK plays every kubelet at once, which no role of one node allows.
_ADMIN = "admin"
_CONTROLLER_MANAGER = "system:kube-controller-manager"
_SCHEDULER = "system:kube-scheduler"
_KWOK = "kwok"
_ALL = "system:masters"
_GROUPS = {_ADMIN: _ALL, _CONTROLLER_MANAGER: "", _SCHEDULER: "", _KWOK: _ALL}

# EKS's default, and nothing routes there.
_SERVICE_RANGE = "172.20.0.0/16"
_POD_RANGE = "10.0.0.0/12"

# Enough for the nodes and pods of the largest pool to appear within seconds.
_REQUESTS_PER_SECOND = 200
_BURST = 400
# A sixth less processor time for some hundred megabytes more (measured, API server).
_GARBAGE = {"GOGC": "400"}

# What needs a cloud, a kubelet's certificate or kubeadm's tokens.
_CONTROLLERS_OFF = (
    "node-ipam-controller",
    "node-route-controller",
    "service-lb-controller",
    "cloud-node-lifecycle-controller",
    "bootstrap-signer-controller",
    "token-cleaner-controller",
)

# Sockets in the cluster's folder, where the programs start: the names may be no longer than 107
# bytes, unix(7), and the port is a matter of form.
_ETCD = "unix://etcd:0"

_STAGES = Path(__file__).with_name("kwok.yaml")

SIMULATED = "localcloud/simulated"
"""Label of the nodes that KWOK plays."""


class ControlPlane:
    """A cluster of its own: fresh certificate, fresh tokens, empty store.

    RBAC, Pod Security, quotas and webhooks are those of any cluster. Start it from the main
    thread; see `Processes`. `token_reviewer` is the URL of who else knows whose a token is. KWOK
    is there for nodes that are simulated.

    Others on the machine reach the ports too. So each asks for a token or a certificate, and etcd,
    which asks for nothing, has sockets in the folder instead.
    """

    def __init__(
        self,
        programs: Mapping[str, Path],
        folder: Path,
        *,
        node_grace_seconds: int = 50,
        token_reviewer: str | None = None,
        simulates_nodes: bool = True,
    ) -> None:
        self.folder = folder
        self._simulates_nodes = simulates_nodes
        self._node_grace_seconds = node_grace_seconds
        self._token_reviewer = token_reviewer
        self.processes = Processes(folder)
        self.ports: dict[str, int] = {}
        self._programs = programs
        self._tokens = {user: secrets.token_hex(16) for user in _GROUPS}
        self._certificates = folder / "certificates"

    def notice_lost_nodes_after(self, seconds: int) -> None:
        """Change how long a node may miss its heartbeat."""
        self._node_grace_seconds = seconds
        self.processes.kill("kube-controller-manager")
        self._start_controller_manager()

    @property
    def server(self) -> str:
        """The address of the API server."""
        return f"https://127.0.0.1:{self.ports['kube-apiserver']}"

    @property
    def authority(self) -> Path:
        """The certificate that signs the API server's own; it makes both at its start."""
        return self._certificates / "apiserver.crt"

    @property
    def client_certificate(self) -> Path:
        """The certificate that the API server shows to kubelets."""
        return self._certificates / "kubelet-client.crt"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self._kubeconfig_file(_ADMIN)

    @property
    def token(self) -> str:
        """The administrator's token."""
        return self._tokens[_ADMIN]

    @cached_property
    def client(self) -> Client:
        """An administrator's client."""
        return connect(self.server, self.authority, self.token)

    def start(self) -> None:
        """Start everything and return when it is ready, after about five seconds."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        self._certificates.mkdir()
        certificates.write_client(self.client_certificate, self._client_key)
        try:
            self._start_etcd()
            self._start_api_server()
            self._start_controller_manager()
            self._start_scheduler()
            if self._simulates_nodes:
                self._start_kwok()
            self._wait()
        except BaseException:
            self.stop()
            raise

    def run(self, name: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        """Start one of the built programs beside the others.

        What they keep goes with the cluster's folder, so nobody waits for their orderly end.
        """
        program = self._programs[name]
        variables = {**_GARBAGE, **(environment or {})}
        self.processes.start(
            name, program, *arguments, environment=variables, folder=self.folder, cleans_up=False
        )

    def port(self, name: str) -> int:
        """Choose a free port and remember whose it is."""
        self.ports[name] = free_port()
        return self.ports[name]

    def stop(self) -> None:
        """Stop every process, those of Kubernetes itself after its clients."""
        if "client" in vars(self):
            self.client.close()
        self.processes.stop()

    def write_kubeconfig(self, user: str, token: str) -> Path:
        """Write a user's kubeconfig; it holds all it needs, so it may be copied."""
        file = self._kubeconfig_file(user)
        cluster = {"server": self.server, "certificate-authority": str(self.authority)}
        kubeconfigs.write(file, cluster, user, {"token": token})
        return file

    def _start_etcd(self) -> None:
        peer = "unix://etcd-peer:0"
        self.run(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            # The store ends with the cluster; waiting for the disk would protect nothing.
            "--unsafe-no-fsync",
            "--log-level=warn",
            f"--listen-client-urls={_ETCD}",
            f"--advertise-client-urls={_ETCD}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        )
        self.processes.wait("etcd", (self.folder / _ETCD.rpartition("/")[2]).exists)

    def _start_api_server(self) -> None:
        tokens = self.folder / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(
            "".join(
                f'{self._tokens[user]},{user},{user},"{group}"\n' for user, group in _GROUPS.items()
            )
        )
        self.run(
            "kube-apiserver",
            f"--etcd-servers={_ETCD}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.port('kube-apiserver')}",
            f"--cert-dir={self._certificates}",
            f"--token-auth-file={tokens}",
            *kubeconfigs.token_review(self.folder, self._token_reviewer),
            "--authorization-mode=Node,RBAC",
            # Stricter than a default server: only who may finalize a job may own pods by it.
            "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
            "--allow-privileged=true",
            # Endpoints refuse a loopback address.
            "--endpoint-reconciler-type=none",
            # Where a kubelet of processes listens; the names of its nodes lead nowhere.
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-client-certificate={self.client_certificate}",
            f"--kubelet-client-key={self._client_key}",
            f"--service-cluster-ip-range={_SERVICE_RANGE}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.private_key}",
            f"--service-account-signing-key-file={self.private_key}",
        )
        self.processes.wait("kube-apiserver", self._has_certificates)
        self.processes.wait("kube-apiserver", self.client.ready)
        for user, token in self._tokens.items():
            self.write_kubeconfig(user, token)

    def _has_certificates(self) -> bool:
        """Tell whether both files are whole; the API server writes the key last."""
        key = self._certificates / "apiserver.key"
        return key.exists() and key.read_text().endswith("KEY-----\n")

    def _start_controller_manager(self) -> None:
        self.run(
            "kube-controller-manager",
            *self._serving("kube-controller-manager", _CONTROLLER_MANAGER),
            f"--kubeconfig={self._kubeconfig_file(_CONTROLLER_MANAGER)}",
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={self.private_key}",
            f"--root-ca-file={self.authority}",
            # A claim is bound after 1 s instead of 11.
            "--pvclaimbinder-sync-period=1s",
            # How long a node may miss its heartbeat; Kubernetes' own default is 50 s.
            f"--node-monitor-grace-period={self._node_grace_seconds}s",
            f"--kube-api-qps={_REQUESTS_PER_SECOND}",
            f"--kube-api-burst={_BURST}",
            "--controllers=" + ",".join(["*", *(f"-{name}" for name in _CONTROLLERS_OFF)]),
        )

    def _start_scheduler(self) -> None:
        file = self.folder / "scheduler.json"
        connection = {
            "kubeconfig": str(self._kubeconfig_file(_SCHEDULER)),
            "qps": _REQUESTS_PER_SECOND,
            "burst": _BURST,
        }
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": connection,
        }
        file.write_text(json.dumps(config))
        self.run("kube-scheduler", *self._serving("kube-scheduler", _SCHEDULER), f"--config={file}")

    def _start_kwok(self) -> None:
        self.run(
            "kwok",
            f"--kubeconfig={self._kubeconfig_file(_KWOK)}",
            f"--config={_STAGES}",
            f"--manage-nodes-with-label-selector={SIMULATED}",
            f"--cidr={_POD_RANGE}",
            # Renewed four times within it: of a thousand nodes that is much of the load.
            f"--node-lease-duration-seconds={max(40, self._node_grace_seconds - 10)}",
        )

    def _wait(self) -> None:
        wait, client = self.processes.wait, self.client
        # The last thing that the first pod of a namespace needs.
        account = ("v1", "ServiceAccount", "default", "default")
        wait("kube-controller-manager", lambda: client.find(*account) is not None)
        wait("kube-scheduler", lambda: listens(self.ports["kube-scheduler"]))

    def _serving(self, name: str, user: str) -> tuple[str, ...]:
        kubeconfig = self._kubeconfig_file(user)
        return (
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port(name)}",
            f"--cert-dir={self._certificates / name}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
        )

    @property
    def private_key(self) -> Path:
        """The key of the authority's certificate."""
        # The API server makes its serving key before it reads the one for ServiceAccounts, so one
        # key serves both and no other tool has to make one.
        return self._certificates / "apiserver.key"

    @property
    def _client_key(self) -> Path:
        return self._certificates / "kubelet-client.key"

    def _kubeconfig_file(self, user: str) -> Path:
        return self.folder / f"{user.replace(':', '-')}.kubeconfig"
