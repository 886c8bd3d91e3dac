"""All regions: each begins to exist when it is first asked for."""

import threading
from collections.abc import Callable

from megatron_eks.localcloud.aws.clients import Clients
from megatron_eks.localcloud.aws.cloudformation.failures import Failures
from megatron_eks.localcloud.aws.cloudformation.region import Region


class Regions:
    """CloudFormation of every region, by the region's name."""

    def __init__(self, clients: Callable[[str], Clients]) -> None:
        self._make_clients = clients
        self._clients: dict[str, Clients] = {}
        self._regions: dict[str, Region] = {}
        self._lock = threading.Lock()
        self.failures = Failures()

    def region(self, name: str) -> Region:
        """Return a region."""
        clients = self.clients(name)
        with self._lock:
            if name not in self._regions:
                self._regions[name] = Region(name, clients, self.failures)
            return self._regions[name]

    def clients(self, name: str) -> Clients:
        """Return the clients of a region."""
        with self._lock:
            if name not in self._clients:
                self._clients[name] = self._make_clients(name)
            return self._clients[name]
