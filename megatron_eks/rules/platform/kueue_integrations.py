"""Rule over kinds of jobs that stand in a queue, and that Kueue was not told to watch."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.platform.plugin_configs import embedded
from megatron_eks.rules.values import is_absent, items, mapping, shown, text

_QUEUE = "kueue.x-k8s.io/queue-name"
# kueue, apis/config/v1beta1, Integrations.Frameworks: the names of its kinds.
_NAMES = {
    ("kubeflow.org", "PyTorchJob"): "kubeflow.org/pytorchjob",
    ("kubeflow.org", "MPIJob"): "kubeflow.org/mpijob",
    ("trainer.kubeflow.org", "TrainJob"): "trainer.kubeflow.org/trainjob",
    ("jobset.x-k8s.io", "JobSet"): "jobset.x-k8s.io/jobset",
    ("batch", "Job"): "batch/job",
}


def watched(together: ManifestSet) -> Iterator[Found]:
    """Warn of a job with a queue, whose kind Kueue's configuration beside it leaves out.

    Kueue, "Run PyTorchJobs": kubeflow.org/pytorchjob must stand in integrations.frameworks; the
    list takes the place of the default, and of a kind that is not there no job waits its turn.
    """
    queued = [each for each in together.objects if not is_absent(each.labels.get(_QUEUE))]
    for config in together.of("ConfigMap"):
        for path, body in embedded(config):
            kind, group = text(body.get("kind")), text(body.get("apiVersion")) or ""
            if kind != "Configuration" or not group.startswith("config.kueue.x-k8s.io"):
                continue
            listed = mapping(body.get("integrations")) or {}
            known = [text(each) for each in items(listed.get("frameworks")) or []]
            outside = items(listed.get("externalFrameworks")) or []
            for name in dict.fromkeys(_NAMES.get((each.group, each.kind)) for each in queued):
                if known and not outside and name is not None and name not in known:
                    found = f"no {shown(name)} among the frameworks, and jobs of that kind name a "
                    found += "queue: Kueue leaves them alone, and all start at once"
                    remedy = f"add {name} to integrations.frameworks"
                    yield config, config.find(Code.QUEUE, path, found, remedy, Level.WARNING)
