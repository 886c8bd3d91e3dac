"""What a cluster's events and daemons say when all is well, or when it came right by itself."""

import pytest

from megatron_eks.diagnosis.codes import LogCode
from megatron_eks.diagnosis.diagnose import diagnose

MOUNTED_LATE = """
  Normal   Scheduled    9m  default-scheduler  Successfully assigned ml/x-worker-0 to ip-10-0-1-7
  Warning  FailedMount  9m  kubelet            MountVolume.SetUp failed for volume "shared" : driver
  Normal   Pulling      9m  kubelet            Pulling image "fsdp"
  Normal   Started      8m  kubelet            Started container pytorch
"""
NODE_BEGINS = """
  Warning  InvalidDiskCapacity    2m28s  kubelet  invalid capacity 0 on image filesystem
  Warning  ImageGCFailed          2m28s  kubelet  failed to get imageFs: invalid capacity 0
  Normal   NodeHasNoDiskPressure  2m28s  kubelet  Node ip-10 status is now: NodeHasNoDiskPressure
  Normal   NodeReady              2m18s  kubelet  Node ip-10 status is now: NodeReady
"""
CONDITIONS = """
  MemoryPressure   False   KubeletHasSufficientMemory   kubelet has sufficient memory available
  DiskPressure     False   KubeletHasNoDiskPressure     kubelet has no disk pressure
  Ready            True    KubeletReady                 kubelet is posting ready status
Tolerations:     node.kubernetes.io/not-ready:NoExecute op=Exists for 300s
"""
VOLUME_MADE = """
  Normal  ExternalProvisioning  10s  persistentvolume-controller  waiting for a volume to be created
  Normal   ProvisioningSucceeded  3s  fsx.csi.aws.com_x  Successfully provisioned volume pvc-1
"""
WARNED = 'Warning: would violate PodSecurity "restricted:latest": allowPrivilegeEscalation != false'
AGENT_BEGINS = '{"level":"info","caller":"entrypoint.sh","msg":"Retrying waiting for IPAM-D"}'
NOT_NEEDED = """
  Warning  FailedToRetrieveImagePullSecret  2s  kubelet  Unable to retrieve some image pull secrets
  Normal   Pulled                           8m  kubelet  Container image "x" already present
"""
TRIED_AGAIN = (
    'ERROR Reconcile PyTorchJob error {"error": "the object has been modified; please apply"}'
)
TORN_DOWN = (
    '  Warning  FailedKillPod  3s  kubelet  error killing pod: "KillPodSandboxError": failed to'
    ' destroy network for sandbox: plugin type="aws-cni" name="aws-cni" failed (delete): del cmd'
)


@pytest.mark.parametrize(
    "log",
    [
        MOUNTED_LATE,
        NODE_BEGINS,
        CONDITIONS,
        VOLUME_MADE,
        WARNED,
        AGENT_BEGINS,
        NOT_NEEDED,
        TRIED_AGAIN,
        TORN_DOWN,
    ],
)
def test_what_comes_right_is_blamed_for_nothing(log: str) -> None:
    """Warnings of every start, and of every end."""
    assert diagnose(log.splitlines()).code is None


WAITED = "Warning  FailedScheduling  5m  default-scheduler  0/2 nodes are available: 2 node(s) had"
SCHEDULED = "Normal   Scheduled  4m  default-scheduler  Successfully assigned ml/x-worker-0 to ip-1"
BACK_OFF = "Warning  BackOff  1s  kubelet  Back-off restarting failed container pytorch in pod x"


def test_pod_that_was_scheduled_did_not_end_for_want_of_a_node() -> None:
    """And why its container ends stands in the container's own log."""
    found = diagnose([WAITED, SCHEDULED, BACK_OFF])
    assert found.code is None
    assert "previous" in found.remedy


def test_another_pods_way_says_nothing() -> None:
    """One pod has its node, and the other waits."""
    of_one = "1m Normal Scheduled pod/x-worker-0 Successfully assigned ml/x-worker-0 to ip-1"
    of_other = "2m Warning FailedScheduling pod/x-worker-1 0/2 nodes are available: 2 tainted"
    assert diagnose([of_other, of_one]).code is LogCode.NOT_SCHEDULED
