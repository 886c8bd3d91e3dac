"""What a pod's status says of its containers, in one line."""

from megatron_eks.ops.kube import pods

_LOG = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
RuntimeError: CUDA error: uncorrectable ECC error encountered
============================================================
"""


def failed(message):
    """Return a pod whose container ended with a message."""
    ended = {"exitCode": 1, "reason": "Error", "message": message}
    status = {"name": "pytorch", "state": {"terminated": ended}}
    return {
        "metadata": {"name": "job-master-0", "namespace": "n", "uid": "1"},
        "spec": {"containers": [{"name": "pytorch"}]},
        "status": {"phase": "Failed", "containerStatuses": [status]},
    }


def test_of_a_log_in_the_status_the_last_words_are_shown():
    """The kubelet puts the end of a failed container's log there; rulers say nothing."""
    found = pods.state(failed(_LOG)).reason
    assert found == (
        "pytorch: exit code 1: RuntimeError: CUDA error: uncorrectable ECC error encountered"
    )


def test_a_secret_in_the_last_words_is_not_shown():
    """A status is read, copied and passed on by many."""
    found = pods.state(failed("ValueError: no login with HF_TOKEN=Tr0ub4dor")).reason
    assert found == "pytorch: exit code 1: ValueError: no login with HF_TOKEN=(redacted)"


def test_a_long_line_is_cut_and_none_is_no_colon():
    """A reason is one line of a table."""
    assert pods.state(failed("x" * 3000)).reason == f"pytorch: exit code 1: {'x' * 200}"
    assert pods.state(failed("")).reason == "pytorch: exit code 1"
