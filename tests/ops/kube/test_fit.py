"""What is missing for a job is told before it is submitted."""

from megatron_eks.ops.jobs import fit
from tests.charts import rendered
from tests.ops.aws.fakes import FakeKubernetes


class Kubernetes(FakeKubernetes):
    """An API server that lacks what jobs name by its kind."""

    def serves(self, api_version, kind):
        """Know every kind."""
        return bool(api_version and kind)

    def find(self, api_version, kind, name, namespace=None):
        """Return anything else."""
        del api_version, name, namespace
        return None if kind in {"ServiceAccount", "PriorityClass"} else {}


def test_pods_that_the_api_server_would_refuse():
    """Nodes of a pool without a scaler are paid for while a controller tries again."""
    job = rendered.only(rendered.jobs(rendered.training_job()), "PyTorchJob")
    pod = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    found = fit.obstacles(Kubernetes(), rendered.cluster(), job)
    assert [str(each) for each in found if each.is_final] == [
        f"there is no ServiceAccount {pod['serviceAccountName']} - run: meks apply",
        f"there is no PriorityClass {pod['priorityClassName']} - run: meks apply",
    ]
