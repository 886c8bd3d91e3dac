"""Reads kubeconfig files as kubectl does: files joined, a context chosen, credentials obtained."""

import base64
import binascii
import itertools
import json
import os
import ssl
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from megatron_eks.kubernetes.client import Client
from megatron_eks.kubernetes.connection import Connection, Credentials

# What stands in a kubeconfig is YAML of other programs, which has no narrower type.
Entry = dict[str, Any]

_EXEC_SECONDS = 60
_REMEDY = "run that command to see what it lacks, or write the kubeconfig again"
_SECTIONS = ("clusters", "users", "contexts")
_AUTHORITY = "certificate-authority"


class KubeconfigError(Exception):
    """A kubeconfig cannot be used; the message says why, the remedy what to do."""

    def __init__(self, found: str, remedy: str) -> None:
        super().__init__(found)
        self.remedy = remedy


@dataclass(frozen=True)
class Context:
    """One context of a kubeconfig, with the entries that it names."""

    name: str
    cluster_name: str
    cluster: Entry
    user: Entry

    @property
    def server(self) -> str:
        """The address of the API server."""
        return str(self.cluster.get("server", ""))

    @property
    def eks_cluster(self) -> tuple[str, str] | None:
        """Name and region of the EKS cluster that it leads to, where the entries say so."""
        # `aws eks update-kubeconfig` names the entry by the ARN; the arguments of the program that
        # gets tokens say it too, ours and the AWS CLI's.
        match self.cluster_name.split(":", 5):
            case ["arn", _, "eks", region, _, resource] if resource.startswith("cluster/"):
                return resource.removeprefix("cluster/"), region
        plugin = self.user.get("exec") or {}
        arguments = [str(each) for each in plugin.get("args") or ()]
        named = dict(itertools.pairwise(arguments))
        name = named.get("--cluster-name")
        return (name, named.get("--region", "")) if name else None

    def client(self, timeout: float) -> Client:
        """Return a client whose requests wait as long as said."""
        connection = Connection(
            self.server,
            self._tls(),
            self._credentials(),
            timeout=timeout,
            server_name=self.cluster.get("tls-server-name"),
        )
        return Client(connection)

    def _tls(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cadata=_authority(self.cluster))
        except (ssl.SSLError, ValueError) as error:
            found = f"the certificate authority of cluster {self.cluster_name} is none: {error}"
            raise KubeconfigError(found, "write the kubeconfig again") from error

    def _credentials(self) -> Credentials:
        if "exec" in self.user:
            return _ExecCredentials(self.user["exec"])
        return Credentials(str(self.user.get("token", "")))


def files(option: Path | None, environment: Mapping[str, str], home: Path) -> list[Path]:
    """Return the files to read: the one named, those in KUBECONFIG, or ~/.kube/config."""
    if option is not None:
        return [option]
    named = [part for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    return [Path(part) for part in named] or [home / ".kube" / "config"]


def load(paths: Sequence[Path]) -> Entry:
    """Join kubeconfig files; of two entries of one name the first holds."""
    joined: Entry = {section: [] for section in _SECTIONS}
    for path in paths:
        config = read(path)
        if current := config.get("current-context"):
            joined.setdefault("current-context", current)
        for section in _SECTIONS:
            known = {each["name"] for each in joined[section]}
            for entry in config.get(section) or ():
                if entry["name"] not in known:
                    joined[section].append(_absolute(entry, path.parent))
    return joined


def read(path: Path) -> Entry:
    """Return one file's content, empty if there is none; raise KubeconfigError if it is no such."""
    remedy = "name another file with --kubeconfig, or write one: meks kubeconfig"
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not a UTF-8 text"
        raise KubeconfigError(f"{path} cannot be read: {why}", remedy) from error
    except yaml.YAMLError as error:
        raise KubeconfigError(f"{path} is not valid YAML", remedy) from error
    config = {} if config is None else config
    if not isinstance(config, dict) or not all(_is_section(config.get(each)) for each in _SECTIONS):
        raise KubeconfigError(f"{path} is not a kubeconfig", remedy)
    return config


def contexts(config: Entry) -> dict[str, Context]:
    """Return the contexts whose cluster and user stand in the file too."""
    clusters, users = (
        {each["name"]: each.get(kind) or {} for each in config[section]}
        for section, kind in (("clusters", "cluster"), ("users", "user"))
    )
    found = {}
    for each in config["contexts"]:
        context = each.get("context") or {}
        cluster, user = context.get("cluster", ""), context.get("user", "")
        if cluster in clusters and user in users:
            found[each["name"]] = Context(each["name"], cluster, clusters[cluster], users[user])
    return found


def _is_section(value: object) -> bool:
    return value is None or (
        isinstance(value, list) and all(isinstance(each, dict) and "name" in each for each in value)
    )


def _absolute(entry: Entry, folder: Path) -> Entry:
    """Return an entry whose file stands where the kubeconfig means: beside itself."""
    cluster = entry.get("cluster")
    if not isinstance(cluster, dict) or not cluster.get(_AUTHORITY):
        return entry
    return {**entry, "cluster": {**cluster, _AUTHORITY: str(folder / cluster[_AUTHORITY])}}


def _authority(cluster: Entry) -> str | None:
    """Return what stands in the entry itself, or in the file that it names."""
    try:
        if data := cluster.get(f"{_AUTHORITY}-data"):
            return base64.b64decode(data, validate=True).decode()
        return Path(cluster[_AUTHORITY]).read_text() if cluster.get(_AUTHORITY) else None
    except (OSError, binascii.Error, UnicodeDecodeError) as error:
        found = f"{_AUTHORITY} of the kubeconfig cannot be read: {error}"
        raise KubeconfigError(found, "write the kubeconfig again") from error


class _ExecCredentials(Credentials):
    """Tokens that a program prints (client.authentication.k8s.io, ExecCredential)."""

    def __init__(self, plugin: Entry) -> None:
        super().__init__()
        self._plugin = plugin
        self._first = threading.Lock()

    def token(self) -> str:
        # Requests that begin together share one run of the program.
        with self._first:
            if not self._token:
                self.renew()
        return self._token

    def renew(self) -> bool:
        command = [self._plugin["command"], *(self._plugin.get("args") or ())]
        variables = {each["name"]: each["value"] for each in self._plugin.get("env") or ()}
        shown = " ".join(map(str, command))
        try:
            new = str(json.loads(self._run(command, variables))["status"]["token"])
        except (OSError, subprocess.TimeoutExpired) as error:
            raise KubeconfigError(f"no token from `{shown}`: {error}", _REMEDY) from error
        except subprocess.CalledProcessError as error:
            lines = error.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
            raise KubeconfigError(f"no token from `{shown}`: {lines[-1]}", _REMEDY) from error
        except (ValueError, KeyError, TypeError) as error:
            raise KubeconfigError(f"`{shown}` printed no ExecCredential", _REMEDY) from error
        changed, self._token = new != self._token, new
        return changed

    def _run(self, command: Sequence[str], variables: Mapping[str, str]) -> bytes:
        version = self._plugin.get("apiVersion", "client.authentication.k8s.io/v1")
        asked = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
        environment = {**os.environ, **variables, "KUBERNETES_EXEC_INFO": json.dumps(asked)}
        return subprocess.run(  # noqa: S603 -- what the kubeconfig names, as kubectl does
            command, env=environment, capture_output=True, timeout=_EXEC_SECONDS, check=True
        ).stdout
