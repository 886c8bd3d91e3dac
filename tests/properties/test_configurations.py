"""Whatever a user writes: a plan that adds up, or findings that name a place in the file."""

import json
from dataclasses import asdict
from datetime import date
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.errors import Finding, has_errors
from megatron_eks.config.load import Document, read_mapping
from megatron_eks.config.outputs import read_outputs
from megatron_eks.config.parse import parse_cluster, parse_job
from megatron_eks.plan.cluster.cluster import ClusterPlan, check_cluster, plan_cluster
from megatron_eks.plan.jobs.table import check_job, plan_job

ROOT = Path(__file__).parents[2]
CLUSTER = (ROOT / "cluster.yaml").read_text()
JOB = (ROOT / "jobs" / "megatron-cpt-techpulse.yaml").read_text()
JOBS = tuple(file.read_text() for file in sorted((ROOT / "jobs").iterdir()))
TAGS = {"megatron": "a" * 20, "fsdp": "b" * 20}
TODAY = date(2026, 11, 21)

ZONES = ("us-east-2a", "us-east-2b", "us-east-2c")

reservations = st.from_regex(r"cr-[0-9a-f]{17}", fullmatch=True)
capacities: st.SearchStrategy[dict[str, str]] = st.one_of(
    st.sampled_from([{"type": "on_demand"}, {"type": "spot"}]),
    st.builds(lambda name: {"type": "reservation", "id": name}, reservations),
    st.builds(
        lambda name, day: {"type": "capacity_block", "id": name, "ends_at": f"{day}T11:30:00Z"},
        reservations,
        st.dates(date(2026, 11, 1), date(2027, 6, 1)),
    ),
)
pools = st.builds(
    lambda name, instance, zone, nodes, capacity, group: {
        "name": name,
        "instance_type": instance,
        "availability_zone": zone,
        "max_nodes": nodes,
        "capacity": capacity,
        "placement_group": group,
    },
    st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True),
    st.sampled_from(sorted(INSTANCES)),
    st.sampled_from(ZONES),
    st.integers(1, 450),
    capacities,
    st.sampled_from(["auto", True, False]),
)


def cluster_of(gpu_pools: list[dict[str, object]]) -> ClusterConfig:
    """Parse the shipped cluster with other pools."""
    value = read_mapping(CLUSTER, "c").value
    assert isinstance(value, dict)
    text = json.dumps({**value, "gpu_pools": gpu_pools})
    config, findings = parse_cluster(read_mapping(text, "c"))
    assert config is not None, findings
    return config


def plan_of(gpu_pools: list[dict[str, object]]) -> ClusterPlan:
    """Plan it."""
    return plan_cluster(cluster_of(gpu_pools), TAGS)


@settings(deadline=None, max_examples=50)
@given(st.lists(pools, min_size=1, max_size=4, unique_by=lambda pool: pool["name"]))
def test_pools_do_not_influence_each_other(gpu_pools):
    """A pool's plan is the same whatever stands beside it, in whatever order."""
    together = plan_of(gpu_pools)
    backwards = plan_of(gpu_pools[::-1])
    for pool in gpu_pools:
        alone = plan_of([pool]).pools[0]
        assert together.pool(str(pool["name"])) == alone == backwards.pool(str(pool["name"]))


@settings(deadline=None, max_examples=300)
@given(pools)
def test_capacity_is_said_in_one_way(pool):
    """Whatever the family: accepted pools buy their nodes as EKS and EC2 demand."""
    findings = list(check_cluster(cluster_of([pool]), TODAY))
    [plan] = plan_of([pool]).pools
    kind = plan.capacity.kind
    reserved = kind in {"reservation", "capacity_block"}
    assert (plan.capacity.reservation_id is not None) == reserved
    assert (plan.capacity.market == "capacity-block") == (kind == "capacity_block")
    assert plan.capacity.node_group_type == {"reservation": "ON_DEMAND"}.get(kind, kind.upper())
    if not has_errors(findings):
        assert not (plan.placement_group and reserved)
        assert plan.instance.capacity_blocks or kind != "capacity_block"
        assert plan.capacity.ends_at is None or plan.capacity.ends_at.date() >= TODAY


@settings(deadline=None, max_examples=50)
@given(st.lists(pools, min_size=1, max_size=3, unique_by=lambda pool: pool["name"]))
def test_dump_and_load_give_the_same_configuration(gpu_pools):
    """Nothing is lost or invented on the way."""
    config = cluster_of(gpu_pools)
    again, _ = parse_cluster(read_mapping(config.model_dump_json(), "c"))
    assert again == config


@settings(deadline=None, max_examples=300)
@given(
    nodes=st.sampled_from([1, 2, 3, 4, 8]),
    tensor=st.integers(1, 16),
    pipeline=st.integers(1, 8),
    context=st.sampled_from([1, 2, 4]),
    micro=st.integers(1, 4),
    batch=st.integers(1, 1024),
)
def test_an_accepted_layout_adds_up(*, nodes, tensor, pipeline, context, micro, batch):
    """Either a finding, or sizes that multiply to the GPUs and divide the batch."""
    text = JOB.replace("nodes: 2", f"nodes: {nodes}").replace("tensor: 4", f"tensor: {tensor}")
    text = text.replace("  pipeline: 1", f"  pipeline: {pipeline}\n  context: {context}")
    text = text.replace("micro_batch_size: 1", f"micro_batch_size: {micro}")
    text = text.replace("global_batch_size: 512", f"global_batch_size: {batch}")
    job, _ = parse_job(read_mapping(text, "j"))
    config, _ = parse_cluster(read_mapping(CLUSTER.replace("max_nodes: 2", "max_nodes: 8"), "c"))
    assert job is not None
    assert config is not None
    findings = list(check_job(job, config))
    if has_errors(findings):
        return
    outputs, _ = read_outputs(None, "c", {"megatron": "m:1", "fsdp": "f:1"})
    plan = plan_job(job, plan_cluster(config, TAGS), outputs.images)
    assert plan.training is not None
    layout, memory = plan.training.layout, plan.training.memory
    assert layout.tensor * layout.pipeline * layout.context * layout.data == plan.gpus
    assert batch % (micro * layout.data) == 0
    assert tensor <= 8
    assert memory.per_gpu_bytes <= memory.capacity_bytes
    assert all(isinstance(word, str) for word in plan.args)
    assert json.dumps(asdict(plan.resources))


def _paths(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """List the paths of everything below a value."""
    items: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    below = [deeper for key, item in items for deeper in _paths(item, (*path, key))]
    return [*((*path, key) for key, _ in items), *below]


def _replaced(value: object, path: tuple[str | int, ...], new: object) -> object:
    if not path:
        return new
    if isinstance(value, dict):
        return {k: _replaced(v, path[1:], new) if k == path[0] else v for k, v in value.items()}
    assert isinstance(value, list)
    return [_replaced(v, path[1:], new) if i == path[0] else v for i, v in enumerate(value)]


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 10**12),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_any_value_anywhere_is_accepted_or_placed(data):
    """Whatever stands in place of a value, the outcome is a plan or findings with a line."""
    text = data.draw(st.sampled_from([CLUSTER, *JOBS]))
    value = read_mapping(text, "f").value
    path = data.draw(st.sampled_from(_paths(value)))
    changed = _replaced(value, path, data.draw(JUNK))
    document = read_mapping(json.dumps(changed, indent=1), "f")
    findings = list(document.findings) + _check(document, is_cluster=text is CLUSTER)
    for finding in findings:
        assert finding.line > 0
        assert finding.remedy
        assert str(finding).startswith(("error MEKS-", "warning MEKS-"))


def _check(document: Document, *, is_cluster: bool) -> list[Finding]:
    if is_cluster:
        config, findings = parse_cluster(document)
        if config is None:
            return findings
        findings = [*findings, *document.locate(check_cluster(config, TODAY))]
        if not has_errors(findings):
            assert plan_cluster(config, TAGS).pools
        return findings
    job, findings = parse_job(document)
    config, _ = parse_cluster(read_mapping(CLUSTER, "c"))
    assert config is not None
    if job is not None:
        findings = [*findings, *document.locate(check_job(job, config))]
        if not has_errors(findings):
            outputs, _ = read_outputs(None, "c", {"megatron": "m:1", "fsdp": "f:1"})
            assert plan_job(job, plan_cluster(config, TAGS), outputs.images).program
    return findings
