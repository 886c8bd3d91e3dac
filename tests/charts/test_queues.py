"""What queues are told of a job: whose it is, its class, and where its ranks are wanted."""

from dataclasses import replace
from typing import Any, cast

import pytest

from megatron_eks.catalog.workloads import WITH_PODS, AnyWorkload, templates
from megatron_eks.plan.jobs.queue import placement
from tests.charts import rendered

_PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
_GROUP = "kueue.x-k8s.io/podset-group-name"
_SLICE = "kueue.x-k8s.io/podset-slice-required-topology"
_SIZE = "kueue.x-k8s.io/podset-slice-size"
_OFFSET = "kueue.x-k8s.io/pod-index-offset"
_LAYER = "topology.k8s.aws/network-node-layer-3"


def _annotations(kind, **changes):
    workload = cast("AnyWorkload", kind.lower())
    plan = replace(rendered.training_job(), workload=workload, queue="vision", **changes)
    objects = rendered.jobs(plan)
    (found,) = (each for each in objects if each["kind"] == kind)
    pods = next(each for each in objects if each["kind"] in WITH_PODS)
    return found["metadata"]["labels"], [
        template["metadata"].get("annotations", {}) for _, template in templates(pods)
    ]


@pytest.mark.parametrize("kind", ["PyTorchJob", "JobSet", "TrainJob", "Job"])
def test_ranks_are_wanted_close_to_each_other(kind):
    """A master is counted apart, so it is put together with its workers."""
    labels, found = _annotations(kind)
    assert labels["kueue.x-k8s.io/queue-name"] == "vision"
    assert labels["kueue.x-k8s.io/priority-class"] == "vision.megatron-training"
    first, *others = found
    group = {_GROUP: "megatron-cpt-techpulse"} if kind == "PyTorchJob" else {}
    assert first == {_PREFERRED: _LAYER, **group}
    # Kueue counts workers from 1 (pkg/controller/tas/topology_ungater.go), the operator from 0.
    assert others == [{**first, _OFFSET: "-1"}] * (kind == "PyTorchJob")


@pytest.mark.parametrize(
    ("changes", "args", "size"),
    [
        # Within a node, whatever the pipeline: its stages are far from each other.
        ({"tensor": 8, "pipeline": 4, "data": 1}, (), 1),
        ({"tensor": 8, "context": 2, "pipeline": 2, "data": 1}, (), 2),
        ({"tensor": 4, "data": 8, "expert": 16, "expert_tensor": 1}, (), 2),
        ({"tensor": 8, "context": 4, "data": 1}, (), 4),
        ({"tensor": 8, "pipeline": 2, "data": 2}, ("--use-tp-pp-dp-mapping",), 2),
    ],
)
def test_groups_that_wait_for_each_other_in_each_layer_stay_together(changes, args, size):
    """Nodes in a row, as Megatron numbers ranks; a PyTorchJob says that it cannot do it."""
    job = rendered.training_job()
    plain = {"tensor": 1, "context": 1, "pipeline": 1, "expert": 1, "expert_tensor": 1}
    assert job.training
    layout = replace(job.training.layout, **{**plain, **changes})
    training = replace(job.training, layout=layout)
    more: dict[str, Any] = {"nodes": 4, "training": training, "args": (*job.args, *args)}
    slices = {_SLICE: _LAYER, _SIZE: str(size)} if size > 1 else {}
    assert _annotations("JobSet", **more)[1] == [{_PREFERRED: _LAYER, **slices}]
    assert not any(_SLICE in each for each in _annotations("PyTorchJob", **more)[1])
    told = placement(replace(job, **more, queue="vision"))
    assert told
    assert ("a PyTorchJob cannot" in told.why) is (size > 1)


def test_one_node_lies_anywhere_and_a_class_of_ones_own_counts_as_it_is():
    """There is nothing to be close to, and Kueue takes the value of the pods' class."""
    labels, found = _annotations("PyTorchJob", nodes=1, priority_class="mine")
    assert found == [{}]
    assert "kueue.x-k8s.io/priority-class" not in labels


def test_without_queues_nothing_is_told():
    """Byte for byte what it was."""
    (job,) = rendered.jobs(rendered.training_job())[-1:]
    assert "kueue" not in str(job)
