"""No rank is shown with another's state, whatever pods there are and in which order they come."""

from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_eks.ops.kube import jobs
from megatron_eks.ops.kube.jobs import RunningJob

_OWN, _EARLIER, _STRANGER = "uid-now", "uid-before", "uid-of-another"
_KINDS = ("PyTorchJob", "Job")


def job(kind, ranks):
    """Return a job of so many ranks."""
    metadata = {"name": "train", "namespace": "n", "uid": _OWN}
    template = {"spec": {"containers": [{"name": "pytorch"}]}}
    spec = {
        "PyTorchJob": {
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1, "template": template},
                "Worker": {"replicas": ranks - 1, "template": template},
            }
        },
        "Job": {"completionMode": "Indexed", "parallelism": ranks, "template": template},
    }[kind]
    return RunningJob({"kind": kind, "metadata": metadata, "spec": spec})


def pod(kind, rank, owner, second, phase, *, deleting=False):
    """Return a pod whose node says which rank of which job it is."""
    if kind == "PyTorchJob":
        role = "master" if rank == 0 else "worker"
        labels = {
            "training.kubeflow.org/job-name": "train",
            "training.kubeflow.org/replica-type": role,
            "training.kubeflow.org/replica-index": str(max(0, rank - 1)),
        }
    else:
        labels = {"batch.kubernetes.io/job-completion-index": str(rank)}
    metadata = {
        "name": f"train-{owner}-{rank}-{second}",
        "uid": f"{owner}-{rank}-{second}-{phase}",
        "labels": labels,
        "creationTimestamp": f"2026-11-22T13:00:{second:02}Z",
        "ownerReferences": [{"uid": owner, "controller": True}] if owner else [],
    }
    if deleting:
        metadata["deletionTimestamp"] = "2026-11-22T13:01:00Z"
    return {
        "metadata": metadata,
        "spec": {"nodeName": f"{owner}/{rank}", "containers": []},
        "status": {"phase": phase},
    }


_generation = st.tuples(
    st.integers(0, 59), st.sampled_from(["Pending", "Running", "Failed", "Succeeded"])
)


@given(
    kind=st.sampled_from(_KINDS),
    generations=st.lists(
        st.lists(_generation, max_size=3, unique_by=lambda each: each[0]), min_size=2, max_size=40
    ),
    strangers=st.lists(
        st.tuples(st.integers(0, 60), st.sampled_from([_EARLIER, _STRANGER, ""]), _generation),
        max_size=20,
    ),
    random=st.randoms(use_true_random=False),
)
@settings(deadline=None)
def test_each_rank_has_its_own_newest_pod(kind, generations, strangers, random):
    """Pods of earlier jobs of the name and of strangers with its labels count for nothing."""
    own = [
        [pod(kind, rank, _OWN, second, phase) for second, phase in some]
        for rank, some in enumerate(generations)
    ]
    others = [pod(kind, rank, owner, second, phase) for rank, owner, (second, phase) in strangers]
    shuffled = [each for some in own for each in some] + others
    random.shuffle(shuffled)
    running = job(kind, len(generations))
    found = jobs.ranks(running, shuffled)
    assert [rank.number for rank in found] == list(range(len(generations)))
    for rank, some in zip(found, own, strict=True):
        if not some:
            assert rank.pod is None
            continue
        newest = max(some, key=lambda each: each["metadata"]["creationTimestamp"])
        name = newest["metadata"]["name"]
        assert rank.manifest is newest
        assert rank.pod is not None
        assert (rank.pod.node, rank.pod.name) == (f"{_OWN}/{rank.number}", name)


def test_of_two_pods_of_one_second_the_one_that_goes_on():
    """Times of creation are whole seconds, and a replacement may come within one."""
    failed = pod("Job", 0, _OWN, 7, "Failed")
    going = pod("Job", 0, _OWN, 7, "Running", deleting=True)
    new = pod("Job", 0, _OWN, 7, "Pending")
    for some in ([failed, going, new], [new, going, failed], [going, new, failed]):
        assert jobs.ranks(job("Job", 2), some)[0].manifest is new


def test_labels_that_name_no_place_are_no_rank():
    """Somebody may edit them; nothing is shown in a place that is not the pod's."""
    for label in ("", "x", "-1", "1e3", "999999999", "\u0661"):
        odd = pod("Job", 0, _OWN, 1, "Running")
        odd["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] = label
        assert [rank.pod for rank in jobs.ranks(job("Job", 2), [odd])] == [None, None]


def test_ranks_beyond_the_wanted_are_shown_while_they_go():
    """A job that was made smaller still has them for a moment."""
    pods = [pod("PyTorchJob", rank, _OWN, 1, "Running") for rank in range(4)]
    assert len(jobs.ranks(job("PyTorchJob", 2), pods)) == 4
