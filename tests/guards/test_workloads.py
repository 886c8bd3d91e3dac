"""Jobs: their shape, their ranks and their ends."""

import pytest

from megatron_eks.config.codes import Code
from megatron_eks.guards.codes import Rule
from tests.guards.slips import ABSENT, in_manifest, manifests

_JOB = "PyTorchJob/megatron-gpt-7b"
_ROLES = "spec pytorchReplicaSpecs"
_BOX = f"{_ROLES} Worker template spec containers 0"
_COMMAND = f"{_ROLES} Master template spec containers 0 command 0"
_DDP = "Job/ddp-llama-3-2-1b"
_SERVICE = "Service/ddp-llama-3-2-1b"
_FETCH = "Job/fetch-tokenizer"
_PREVIEW = "metadata annotations megatron-eks/preview"


@pytest.mark.parametrize(
    ("name", "path", "value", "code"),
    [
        (_JOB, "apiVersion", "kubeflow.org/v2", Rule.API_VERSION),
        (_JOB, f"{_ROLES} Master", ABSENT, Rule.MASTER_REPLICAS),
        (_JOB, f"{_ROLES} Worker", ABSENT, Rule.MASTER_REPLICAS),
        (_JOB, f"{_ROLES} Worker replicas", 0, Rule.MASTER_REPLICAS),
        (_JOB, f"{_ROLES} Worker restartPolicy", "Never", Rule.RESTART_POLICY),
        (_JOB, "spec nprocPerNode", 8, Rule.PROCESSES_PER_NODE),
        (_JOB, "spec runPolicy cleanPodPolicy", "None", Rule.CLEAN_POD_POLICY),
        (_JOB, "spec runPolicy ttlSecondsAfterFinished", ABSENT, Rule.JOB_FIELDS),
        (_JOB, "spec runPolicy backoffLimit", 0, Rule.JOB_FIELDS),
        (_JOB, "spec runPolicy activeDeadlineSeconds", 3600, Rule.JOB_FIELDS),
        (_JOB, "metadata name", "a" * 60, Rule.JOB_NAME),
        (_JOB, f"{_BOX} name", "megatron", Rule.CONTAINER_NAME),
        (_JOB, f"{_BOX} env 0 value", "8", Rule.REPLICAS_DIFFER),
        (_JOB, _COMMAND, "--nnodes=1", Rule.RENDEZVOUS_FLAG),
        (_JOB, "metadata labels megatron-eks/job", "other", Rule.POD_LABEL),
        (_DDP, "spec parallelism", 1, Rule.JOB_FIELDS),
        (_DDP, "spec template spec subdomain", ABSENT, Rule.SERVICE),
        (_DDP, "spec template spec containers 0 command 6", "-nnodes=3", Rule.RENDEZVOUS_FLAG),
        (_SERVICE, "spec clusterIP", "10.0.0.1", Rule.SERVICE),
        (_SERVICE, "spec publishNotReadyAddresses", ABSENT, Rule.RANKS_WAIT),
        (_FETCH, "spec template spec restartPolicy", "OnFailure", Rule.RESTART_POLICY),
        (_FETCH, "spec template spec initContainers", ABSENT, Rule.JOB_FIELDS),
        (_FETCH, "spec template spec containers 0 command 4", "0", Rule.IDLE),
        (_DDP, "spec template spec containers 0 command 3", "/shared/logs/other", Rule.IDLE),
        (_FETCH, "spec podFailurePolicy", ABSENT, Rule.JOB_FIELDS),
        (_FETCH, _PREVIEW, ABSENT, Code.PREVIEW_REFUSED),
        ("Job/efa-check-p4d", "spec activeDeadlineSeconds", ABSENT, Rule.JOB_FIELDS),
    ],
)
def test_a_wrong_job_is_reported(name, path, value, code):
    """What the operator refuses, what hangs ranks, and what never ends."""
    assert code.name in in_manifest(name, path, value)


def test_files_of_a_job_never_change():
    """Else ranks that start again run other code than those that go on."""
    objects = manifests()
    files = next(e["metadata"]["name"] for e in objects if "immutable" in e)
    assert "JOB_FIELDS" in in_manifest(f"ConfigMap/{files}", "immutable", ABSENT)


_SET = "TrainingRuntime/megatron-gpt-7b"
_QUEUER = "NetworkPolicy/kueue-controller-manager"
_FAILS = "spec template spec failurePolicy"
_OF_SET = "spec template spec replicatedJobs 0 template spec"
_TRAIN, _TRAINER = "TrainJob/megatron-gpt-7b", "kubeflow-trainer-controller-manager"
_RULES = f"ClusterRole/{_TRAINER}"
_HOOK = "ValidatingWebhookConfiguration/validator.trainer.kubeflow.org"


@pytest.mark.parametrize(
    ("name", "path", "value", "code"),
    [
        (_SET, "spec template spec failurePolicy restartStrategy", "Recreate", Rule.JOB_FIELDS),
        (_SET, f"{_FAILS} maxRestarts", ABSENT, Rule.JOB_FIELDS),
        (_SET, f"{_FAILS} rules 0 onJobFailureReasons", ["PodFailed"], Rule.JOB_FIELDS),
        (_SET, f"{_FAILS} rules 1 onJobFailureMessagePatterns", ABSENT, Rule.JOB_FIELDS),
        (_SET, f"{_OF_SET} backoffLimit", 3, Rule.JOB_FIELDS),
        (_SET, f"{_OF_SET} completions", 1, Rule.JOB_FIELDS),
        (_SET, f"{_OF_SET} template metadata labels megatron-eks/trainjob", "x", Rule.POD_LABEL),
        (_SET, f"{_OF_SET} template spec containers 0 command 7", "x", Rule.RENDEZVOUS_FLAG),
        (_SET, "spec template spec ttlSecondsAfterFinished", 1, Rule.JOB_FIELDS),
        (_TRAIN, "spec runtimeRef name", "other", Rule.JOB_FIELDS),
        (_TRAIN, "spec trainer", {"numNodes": 4}, Rule.JOB_FIELDS),
        (_SET, f"{_OF_SET} template spec initContainers 0 image", "a/b:1", Rule.JOB_FIELDS),
        (_QUEUER, "spec ingress 0 ports 0 port", 9444, Rule.RANKS_CUT_OFF),
        (_QUEUER, "spec podSelector", {}, Rule.POLICY_MEANING),
        (_TRAIN, "spec runtimeRef kind", ABSENT, Rule.JOB_FIELDS),
        (_TRAIN, "metadata labels megatron-eks/job", ABSENT, Rule.POD_LABEL),
        (_RULES, "rules 2 resources", ["configmaps"], Rule.RIGHTS),
        (f"Role/{_TRAINER}", "rules 0 verbs", ["get"], Rule.RIGHTS),
        (f"Deployment/{_TRAINER}", "spec replicas", 2, Rule.OPERATOR),
        ("Secret/kubeflow-trainer-webhook-cert", "metadata name", "other", Rule.OPERATOR),
        (_HOOK, "webhooks 0 failurePolicy", "Ignore", Rule.WEBHOOK),
    ],
)
def test_a_wrong_train_job_is_reported(name, path, value, code):
    """In the runtime beside it, in itself, and in what its controller needs."""
    assert code.name in in_manifest(name, path, value, "without_a_way_out")


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        (_JOB, "spec runPolicy cleanPodPolicy", "All"),
        (_JOB, "spec nprocPerNode", "auto"),
        (_DDP, "spec template spec containers 0 command 10", "--master-port=29400"),
        (_FETCH, "spec activeDeadlineSeconds", 7200),
        (_FETCH, "spec podFailurePolicy rules 0 onExitCodes values", [2]),
    ],
)
def test_another_right_job_is_not(name, path, value):
    """Other limits and ports are the user's to choose."""
    assert in_manifest(name, path, value) == set()
