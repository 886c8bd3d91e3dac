"""What speaks against nodes, from ranks that really fail on them."""

import pytest

from megatron_eks.kubernetes.client import wait_for
from megatron_eks.ops.jobs import nodes
from tests.annex import jobs
from tests.annex.kubelet import runs

pytestmark = pytest.mark.control_plane

XID = "NVRM: Xid (PCI:0000:10:1c): 79, pid=4711, GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("words", "suspect"),
    [(XID, True), ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.", False)],
)
def test_the_node_of_a_rank_that_lost_its_gpu_is_suspect(cluster, submit, words, suspect):
    """And that of a rank that only wanted too much is not, nor is the other rank's."""
    job = runs.job("ends-badly", 2, image=runs.SMALL)
    script = f'[ "$RANK" = 0 ] && exec sleep 1000; echo "{words}"; exit 1'
    for pod in jobs.pod_specs(job):
        (container,) = pod["containers"]
        container |= {"command": ["sh", "-c", script], "args": []}
    submit(job)

    def failed():
        for pod in jobs.pods_of(cluster.client, job):
            for status in pod["status"].get("containerStatuses") or ():
                if any("terminated" in status[each] for each in ("state", "lastState")):
                    return pod["spec"]["nodeName"]
        return None

    name = wait_for("rank 1 to fail", failed, 120)
    found = {each.name: each for each in nodes.read(cluster.client, cluster.plan)}
    assert [each.name for each in found.values() if each.suspect] == ([name] if suspect else [])
    against = {(each.job, each.rank) for each in found[name].failures}
    assert against == ({("ends-badly", 1)} if suspect else set())
