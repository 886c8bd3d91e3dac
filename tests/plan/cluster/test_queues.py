"""How shares of teams are split over pools, and which jobs their queues can hold."""

import pytest

from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import parse_cluster, parse_job
from megatron_eks.plan.cluster.queues import topology_levels
from megatron_eks.plan.jobs.table import check_job
from tests.plan.conftest import ROOT, changed

_FIRST = (
    "  - name: p4d\n    instance_type: p4d.24xlarge\n"
    "    availability_zone: us-east-2b\n    max_nodes: 2\n"
)
_SECOND = _FIRST.replace("p4d", "p5").replace("p5.24", "p5.48").replace("s: 2", "s: 16")


def _changes(*gpus, more=""):
    """Return a second, larger pool, queues, and teams `a`, `b`, ... of so many GPUs."""
    teams = "".join(
        f"  - {{name: {name}, role_arns: ['arn:aws:iam::111122223333:role/{name}'], "
        f"gpus: {number}{more}}}\n"
        for name, number in zip("abc", gpus, strict=False)
    )
    queues = "platform: {kueue: true}\n" + (f"teams:\n{teams}" if gpus else "")
    return {_FIRST: _SECOND + _FIRST, "storage:\n": f"{queues}storage:\n"}


@pytest.mark.parametrize(
    ("gpus", "shares"),
    [
        ((), [(128, 16)]),
        # The last is the platform's namespace, whose checks borrow.
        ((72, 72), [(64, 8), (64, 8), (0, 0)]),
        # Whole nodes of each pool, then what is missing from the first that has it.
        ((60, 84), [(60, 0), (68, 16), (0, 0)]),
        ((8,), [(8, 0), (0, 0), (120, 16)]),
        ((0, 144), [(0, 0), (128, 16), (0, 0)]),
    ],
)
def test_shares_are_split_over_the_pools(cluster, gpus, shares):
    """Nothing is given twice, and what is nobody's comes last."""
    queues = cluster(_changes(*gpus)).queues
    assert [tuple(each.gpus for each in queue.shares) for queue in queues] == shares
    owned = len(gpus) + 1
    nobodys = [queue.team is None for queue in queues]
    assert nobodys == [False] * owned + [True] * (len(shares) - owned)
    for queue in queues:
        # 32 and 4 interfaces for 8 GPUs.
        assert [each.efa for each in queue.shares] == [
            4 * queue.shares[0].gpus,
            -(-queue.shares[1].gpus // 2),
        ]


@pytest.mark.parametrize("own", ["", ", namespace: megatron-workshop"])
def test_checks_of_pools_have_a_queue_whoever_has_their_namespace(cluster, own):
    """A job with GPUs in none would take the nodes of those that wait."""
    plan = cluster(_changes(72, more=own))
    assert plan.queue_in("megatron-workshop") == ("a" if own else "megatron-workshop")


def test_the_network_above_a_node_is_known_by_its_type(cluster):
    """From its widest part; of a type without any there is the node alone."""
    plan = cluster(_changes() | {"type: p4d.24xlarge": "type: g5.48xlarge"})
    wide, narrow = plan.pools
    layer = "topology.k8s.aws/network-node-layer-"
    assert topology_levels(wide) == (*(f"{layer}{n}" for n in (1, 2, 3)), "kubernetes.io/hostname")
    assert topology_levels(narrow) == ("kubernetes.io/hostname",)


@pytest.mark.parametrize(
    ("gpus", "more", "job", "code"),
    [
        ((72, 72), "", {}, None),
        ((72, 72), "", {"runtime:": "runtime:\n  queue: a"}, None),
        ((72, 72), "", {"runtime:": "runtime:\n  queue: b"}, "MEKS-0592"),
        # It has 8 of them, and may have the other team's.
        ((72, 72), "", {"nodes: 1": "nodes: 2"}, None),
        ((72, 72), ", may_borrow: false", {"nodes: 1": "nodes: 2"}, "MEKS-0593"),
        ((), "", {"team: a\n": "", "runtime:": "runtime:\n  queue: megatron-workshop"}, None),
        ((), "", {"team: a\n": "", "runtime:": "runtime:\n  queue: a"}, "MEKS-0592"),
        (None, "", {"team: a\n": "", "runtime:": "runtime:\n  queue: a"}, "MEKS-0592"),
    ],
)
def test_a_queue_holds_a_job_or_refuses_it(gpus, more, job, code):
    """Before anybody waits for ever."""
    text = (ROOT / "cluster.yaml").read_text()
    text = changed(text, {} if gpus is None else _changes(*gpus, more=more))
    config, findings = parse_cluster(read_mapping(text, "cluster.yaml"))
    assert config is not None, findings
    text = (ROOT / "jobs" / "megatron-cpt-techpulse.yaml").read_text()
    text = changed(text, {"kind: megatron": "kind: megatron\nteam: a", "nodes: 2": "nodes: 1"})
    text += "" if "runtime:" in text else "runtime:\n  gang_restarts: 3\n"
    parsed, findings = parse_job(read_mapping(changed(text, job), "job.yaml"))
    assert parsed is not None, findings
    found = {str(each.code) for each in check_job(parsed, config)}
    assert found & {"MEKS-0592", "MEKS-0593"} == ({code} if code else set())
