"""What a job that asks Hugging Face while it runs needs: a token, and a way out."""

from collections.abc import Iterator

from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.job import Job
from megatron_eks.plan.egress import has_no_way_out

# huggingface_hub 1.x, constants.py; datasets 4.x, config.py.
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
_TRUE = frozenset(("1", "ON", "TRUE", "YES"))

# Owners on Hugging Face who let people in one by one.
_GATED = ("meta-llama/", "google/gemma-")
# Gemma is under the Apache licence from 4 on, as is Gemma Scope.
_OPEN = ("google/gemma-4-", "google/gemma-scope-")


def gated(path: Path, name: str) -> Iterator[Finding]:
    """Demand a token for what Hugging Face gives to those alone who were let in."""
    if name.startswith(_GATED) and not name.startswith(_OPEN):
        found = f"{name} is gated, and the job has no token"
        remedy = "name a Kubernetes Secret with a key `token`: token_secret: hugging-face"
        yield Finding(Code.GATED, path, found, remedy)


def from_the_hub(job: Job, path: Path, name: str, cluster: ClusterConfig) -> Iterator[Finding]:
    """Demand a way out for what comes from Hugging Face."""
    for variable in _OFFLINE:
        if job.runtime.env.get(variable, "").upper() in _TRUE:
            found = f"{variable}: {name} comes from Hugging Face, which nobody asks then"
            remedy = "remove it, or bring the files by a job of kind fetch and name their folder"
            yield Finding(Code.ENVIRONMENT_REFUSED, ("runtime", "env", variable), found, remedy)
    if has_no_way_out(cluster):
        found = f"{name} comes from Hugging Face, and the cluster has neither NAT nor proxy"
        remedy = "bring it to S3 and fetch it from there, or set network.proxy"
        yield Finding(Code.NO_WAY_OUT, path, found, remedy)
