"""The names whose values a support bundle shows: all others are people's own, or of other programs.

Everything here is rendered by this project, or set by Kubernetes, EKS or the training operator on
what is rendered; `tests/ops/test_shown_names.py` compares it with all manifests. What a job file
adds (`runtime.env`, `extra_args`, `overrides`) is never on it.
"""

import re

from megatron_eks.catalog.environment import POLICIES, Verdict
from megatron_eks.catalog.tables import sections

_TABLE = sections("shown.txt")

ENVIRONMENT = frozenset(_TABLE["environment"].split()) | frozenset(
    name for name, policy in POLICIES.items() if policy.verdict is Verdict.SET
)
"""Variables of the plan; then of the charts, the operator and torchrun, EKS, and Kubernetes."""

LABELS = frozenset(_TABLE["labels"].split())
"""Labels, and keys of taints."""

ANNOTATIONS = frozenset(_TABLE["annotations"].split())

FILES = frozenset(f"train_{kind}.json" for kind in ("bridge", "ddp", "fsdp")) | {
    "counters.csv",
    "initContainer.yaml",
    "cluster_api.py",
    "job_objects.py",
    "lost_pods.py",
}
"""Keys of ConfigMaps; of a job's configuration what people set freely is left out again."""

VOLUME_ATTRIBUTES = frozenset({"dnsname", "mountname"})

OUTPUTS = re.compile(
    r"(Megatron|Fsdp)(Image|BuildProject)|Lustre(Id|DnsName|MountName)\w{0,9}|EfsId|EfsAccessPointId"
    r"|BastionId|BucketName|JobRoleArn\w{0,20}|TrainingOperator|Jobset|TrainerControllerManager|Cuda|Etcd|AwsEfaK8sDevicePlugin"
)
"""Keys of `outputs.json`."""

FLAGS = frozenset(f"--{name}" for name in _TABLE["flags"].split())
OPTIONS = frozenset(f"--{name}" for name in _TABLE["options"].split())
"""Options with a value: of Megatron-LM, our programs, torchrun, the operator and etcd."""

LISTS = frozenset({"--data-path", "--input", "--json-key", "--recompute-modules"})
"""Options with any number of values."""

WORDS = re.compile(
    r"--|-|sh|-euc|-f|-m|etcd|nvidia-device-plugin|nvidia-smi|python3|torchrun|shared-directories"
    r"|take|pass|make|hold|\d{1,3}"
    r"|/etc/dcgm-exporter/[\w./-]+|/opt/(job-records|scaling(/\w+\.\w+)?)"
    r"|megatron_eks\.programs\.[\w.]+"
    r"|/etc/megatron-eks/(code\.tar\.gz|programs\.zip)|/opt/megatron-eks/packages|record"
)
"""Programs that are started, and what stands between their arguments."""

FIELDS = frozenset(_TABLE["fields"].split())
"""Fields of Kubernetes' objects whose text names or describes, and is no value of a person."""
