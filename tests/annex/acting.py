"""Users who may do less than an administrator."""

import copy
from collections import deque

from megatron_eks.kubernetes.client import Client


def acting_as(client: Client, user: str, group: str = "system:authenticated") -> Client:
    """Return a client whose requests the server judges as another user's, of a group."""
    connection = copy.copy(client.connection)
    headers = {**connection._headers, "Impersonate-User": user, "Impersonate-Group": group}  # noqa: SLF001 -- as it was made
    connection._headers, connection._idle = headers, deque()  # noqa: SLF001 -- likewise
    return Client(connection)
