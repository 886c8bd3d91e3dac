"""What the tests of faults share: names, and three objects."""

from megatron_eks.kubernetes.client import Object

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
