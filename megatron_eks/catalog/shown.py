"""Variables and options whose values are shown where text of others is cleaned of secrets.

Everything here is rendered by this project, or set by Kubernetes, EKS or the training operator on
what is rendered. What a job file adds (`runtime.env`, `extra_args`, `overrides`) is never on it.
"""

from megatron_eks.catalog.environment import POLICIES, Verdict
from megatron_eks.catalog.tables import sections

_TABLE = sections("shown.txt")

ENVIRONMENT = frozenset(_TABLE["environment"].split()) | frozenset(
    name for name, policy in POLICIES.items() if policy.verdict is Verdict.SET
)
"""Variables of the plan; then of the charts, the operator and torchrun, EKS, and Kubernetes."""

FLAGS = frozenset(f"--{name}" for name in _TABLE["flags"].split())
OPTIONS = frozenset(f"--{name}" for name in _TABLE["options"].split())
"""Options with a value: of Megatron-LM, our programs, torchrun, the operator and etcd."""
