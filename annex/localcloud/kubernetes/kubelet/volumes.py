"""What lies behind a pod's volumes: directories of this machine, and file systems in memory."""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from megatron_eks.kubernetes.client import Client, Object
from megatron_eks.kubernetes.quantity import quantity
from megatron_eks.localcloud.kubernetes.kubelet.environment import ConfigError, pod_field

_FILE_MODE = 0o644
_TOKEN_SECONDS = 3600
# Half of the memory, as for every tmpfs without a size.
_MEMORY_SIZE = "50%"


class VolumeError(Exception):
    """A volume cannot be made yet, or never; the message is for the pod's events."""


@dataclass
class Volumes:
    """The volumes of one pod, by name."""

    places: dict[str, Path] = field(default_factory=dict)
    memory: dict[str, str] = field(default_factory=dict)
    """Which of the places are file systems in memory, and how large they may become."""


class VolumeMaker:
    """Makes the volumes of one pod once, when it starts: later changes do not reach its files."""

    def __init__(self, client: Client, pod: Object, folder: Path, shared: Path) -> None:
        self._client, self._pod, self._folder, self._shared = client, pod, folder, shared
        self._namespace: str = pod["metadata"]["namespace"]

    def make(self) -> Volumes:
        """Return the volumes; raise VolumeError if one of them cannot be made."""
        volumes = Volumes()
        for each in self._pod["spec"].get("volumes", ()):
            name = each["name"]
            place = self._folder / name
            place.mkdir(parents=True, exist_ok=True)
            try:
                volumes.places[name] = self._fill(each, place)
            except ConfigError as error:
                message = f'MountVolume.SetUp failed for volume "{name}" : {error}'
                raise VolumeError(message) from error
            empty = each.get("emptyDir") or {}
            if empty.get("medium") == "Memory":
                limit = quantity(empty.get("sizeLimit", "0"))
                volumes.memory[str(place)] = str(int(limit)) if limit else _MEMORY_SIZE
        return volumes

    def _fill(self, volume: Object, place: Path) -> Path:
        match next(kind for kind in volume if kind != "name"):
            case "emptyDir":
                # As for everybody in a real one.
                place.chmod(0o777)
            case "hostPath":
                # Private and empty: no device or socket of this machine is a pod's business.
                pass
            case "configMap" | "secret" | "downwardAPI" as kind:
                source = volume[kind]
                self._project({kind: source}, place, source.get("defaultMode", _FILE_MODE))
            case "projected":
                mode = volume["projected"].get("defaultMode", _FILE_MODE)
                for source in volume["projected"].get("sources") or ():
                    self._project(source, place, mode)
            case "persistentVolumeClaim":
                return self._claim(volume["persistentVolumeClaim"]["claimName"])
            case kind:
                raise VolumeError(f"no process plays volumes of type {kind} on this machine")
        return place

    def _project(self, projection: Object, place: Path, mode: int) -> None:
        ((kind, source),) = projection.items()
        match kind:
            case "configMap" | "secret":
                self._write_keys(kind, source, place, mode)
            case "downwardAPI":
                for item in source.get("items", ()):
                    _write(place, item["path"], _downward(self._pod, item), item.get("mode", mode))
            case "serviceAccountToken":
                _write(place, source["path"], self._token(source), mode)
            case _:
                raise VolumeError(f"no process plays projections of type {kind} on this machine")

    def _write_keys(self, kind: str, source: Object, place: Path, mode: int) -> None:
        name = source.get("secretName") or source["name"]
        found = self._client.find(
            "v1", "Secret" if kind == "secret" else "ConfigMap", name, self._namespace
        )
        if found is None:
            if source.get("optional"):
                return
            raise ConfigError(f'{kind.lower()} "{name}" not found')
        values = contents(found)
        items = source.get("items") or [{"key": key, "path": key} for key in values]
        for item in items:
            if item["key"] in values:
                _write(place, item["path"], values[item["key"]], item.get("mode", mode))
            elif not source.get("optional"):
                raise ConfigError(f"references non-existent {kind.lower()} key: {item['key']}")

    def _token(self, source: Object) -> bytes:
        metadata, account = self._pod["metadata"], self._pod["spec"]["serviceAccountName"]
        reference = {"apiVersion": "v1", "kind": "Pod"}
        reference |= {key: metadata[key] for key in ("name", "uid")}
        seconds = source.get("expirationSeconds", _TOKEN_SECONDS)
        spec: Object = {"expirationSeconds": seconds, "boundObjectRef": reference}
        if audience := source.get("audience"):
            spec["audiences"] = [audience]
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{account}/token"
        return str(self._client.request("POST", path, body)["status"]["token"]).encode()

    def _claim(self, name: str) -> Path:
        claim = self._client.find("v1", "PersistentVolumeClaim", name, self._namespace)
        if claim is None or claim["status"]["phase"] != "Bound":
            raise VolumeError(f'persistentvolumeclaim "{name}" is not bound')
        volume = self._client.get("v1", "PersistentVolume", claim["spec"]["volumeName"])
        return _storage(self._shared, volume)


def _storage(shared: Path, volume: Object) -> Path:
    """Return the directory that stands for what a PersistentVolume leads to.

    For FSx that is the file system's DNS name: the driver mounts by it, whatever the handle is, so
    two volumes may be one file system; a folder of it may stand behind the mount name, and must be
    there (aws-fsx-csi-driver v1.9.0, pkg/driver/node.go).
    """
    source = volume["spec"].get("csi", {})
    attributes: Mapping[str, str] = source.get("volumeAttributes", {})
    name = attributes.get("dnsname") or source.get("volumeHandle") or volume["metadata"]["name"]
    whole = shared / re.sub(r"[^\w.-]", "_", name)
    whole.mkdir(parents=True, exist_ok=True)
    place = whole / attributes.get("mountname", "").partition("/")[2]
    if not place.resolve().is_relative_to(whole.resolve()) or not place.is_dir():
        name = volume["metadata"]["name"]
        raise VolumeError(
            f'MountVolume.SetUp failed for volume "{name}" : there is no folder '
            f"{attributes['mountname'].partition('/')[2]} on the file system"
        )
    return place


def _downward(pod: Object, item: Object) -> bytes:
    if "fieldRef" not in item:
        raise ConfigError("no process plays resourceFieldRef on this machine")
    return pod_field(pod, item["fieldRef"]["fieldPath"]).encode()


def contents(found: Object) -> dict[str, bytes]:
    """Return the values of a ConfigMap or Secret by key."""
    if found["kind"] == "Secret":
        return {key: base64.b64decode(each) for key, each in found.get("data", {}).items()}
    binary = found.get("binaryData", {})
    return {
        **{key: each.encode() for key, each in found.get("data", {}).items()},
        **{key: base64.b64decode(each) for key, each in binary.items()},
    }


def _write(place: Path, path: str, content: bytes, mode: int) -> None:
    file = place / path
    file.parent.mkdir(parents=True, exist_ok=True)
    # Again, when a later volume of the pod was not ready the first time.
    file.unlink(missing_ok=True)
    file.write_bytes(content)
    file.chmod(mode)
