"""What the tests of faults share: names, three objects, and a console that says yes."""

import io

from megatron_eks.kubernetes.client import Object
from megatron_eks.ops.console import Console, SystemClock

NAMESPACE = "megatron-workshop"
JOB = "megatron-gpt-7b"
MAPS: list[Object] = [
    {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"extra-{number}", "namespace": NAMESPACE},
        "data": {"key": "value"},
    }
    for number in range(3)
]


def console():
    """Return a console that says yes."""
    return Console(io.StringIO(), io.StringIO(), io.StringIO(), SystemClock(), yes=True)
