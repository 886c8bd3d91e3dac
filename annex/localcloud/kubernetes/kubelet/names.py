"""What a cluster's name server answers: Services, and pods behind headless ones.

The names and their meaning follow Kubernetes' "DNS-Based Service Discovery" 1.1.0, for A records.
"""

import socket
import struct
import threading
from dataclasses import dataclass, field

from megatron_eks.kubernetes.client import Object
from megatron_eks.kubernetes.watch import Change

DOMAIN = "cluster.local"

_SERVICE_LABEL = "kubernetes.io/service-name"
_HEADLESS = "None"

_HEADER = struct.Struct(">HHHHHH")
_RESPONSE, _AUTHORITATIVE, _RECURSION = 0x8000, 0x0400, 0x0100
_NO_SUCH_NAME = 3
_ADDRESS, _INTERNET = 1, 1
# Pods come and go; CoreDNS has 5 s by default.
_TTL_SECONDS = 1
_QUESTION_POINTER = 0xC00C


# A service, and the addresses of one of its EndpointSlices by host name, the empty one for all.
_Slice = tuple[str, dict[str, list[str]]]


@dataclass
class Names:
    """Every name of the cluster, as its Services and EndpointSlices are told."""

    _services: dict[str, Object] = field(default_factory=dict)
    _slices: dict[str, _Slice] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def learn(self, change: Change) -> None:
        """Take in a changed or deleted Service or EndpointSlice."""
        metadata = change.manifest["metadata"]
        key = f"{metadata['name']}.{metadata['namespace']}"
        with self._lock:
            if "endpoints" in change.manifest or "addressType" in change.manifest:
                self._slices.pop(key, None)
                if not change.deleted:
                    self._slices[key] = _read_slice(change.manifest)
            elif change.deleted:
                self._services.pop(key, None)
            else:
                self._services[key] = change.manifest["spec"]

    def addresses(self, name: str) -> list[str]:
        """Return the addresses of a full name, none if nothing has it."""
        match name.lower().rstrip(".").removesuffix(f".{DOMAIN}").split("."):
            case [service, namespace, "svc"]:
                return self._of(f"{service}.{namespace}", "")
            case [host, service, namespace, "svc"]:
                return self._of(f"{service}.{namespace}", host)
        return []

    def _of(self, service: str, host: str) -> list[str]:
        with self._lock:
            spec = self._services.get(service)
            if spec is None:
                return []
            if spec.get("clusterIP", _HEADLESS) != _HEADLESS:
                return [] if host else [spec["clusterIP"]]
            ours = [addresses for name, addresses in self._slices.values() if name == service]
            return sorted({found for each in ours for found in each.get(host, ())})

    def answer(self, query: bytes) -> bytes:
        """Answer one DNS message; a broken one gets a header that says so."""
        try:
            number, _, _, _, _, _ = _HEADER.unpack_from(query)
            name, end = _read_name(query, _HEADER.size)
            kind, _ = struct.unpack_from(">HH", query, end)
        except (struct.error, IndexError, UnicodeDecodeError):
            return _HEADER.pack(0, _RESPONSE | 1, 0, 0, 0, 0)
        found = self.addresses(name)
        records = found if kind == _ADDRESS else []
        flags = _RESPONSE | _AUTHORITATIVE | _RECURSION | (0 if found else _NO_SUCH_NAME)
        message = _HEADER.pack(number, flags, 1, len(records), 0, 0)
        message += query[_HEADER.size : end + 4]
        for each in records:
            fields = (_QUESTION_POINTER, _ADDRESS, _INTERNET, _TTL_SECONDS, 4)
            message += struct.pack(">HHHIH", *fields) + socket.inet_aton(each)
        return message


def _read_slice(manifest: Object) -> _Slice:
    metadata = manifest["metadata"]
    service = metadata.get("labels", {}).get(_SERVICE_LABEL, "")
    addresses: dict[str, list[str]] = {"": []}
    for endpoint in manifest.get("endpoints") or ():
        if endpoint.get("conditions", {}).get("ready", True):
            for host in {"", endpoint.get("hostname", "")}:
                addresses.setdefault(host, []).extend(endpoint["addresses"])
    return f"{service}.{metadata['namespace']}", addresses


def _read_name(message: bytes, offset: int) -> tuple[str, int]:
    """Return a name and where it ends; a question's name is never compressed."""
    labels = []
    while length := message[offset]:
        labels.append(message[offset + 1 : offset + 1 + length].decode("ascii"))
        offset += 1 + length
    return ".".join(labels), offset + 1
