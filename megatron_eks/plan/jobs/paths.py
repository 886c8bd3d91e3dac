"""Whether paths are of the kind that is read there, and lie where all nodes see them."""

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from megatron_eks.catalog.tables import sections
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, warning
from megatron_eks.config.job import Job, MegatronRun, TorchRun
from megatron_eks.plan.cluster.egress import has_no_way_out
from megatron_eks.plan.cluster.storage import EFS_MOUNT_PATH, check_mount_path, not_shared
from megatron_eks.plan.jobs.environment import shared_mounts

# Text that tools/preprocess_data.py reads; the data set of it is what training reads.
_TEXT = (".jsonl", ".json", ".ndjson", ".txt", ".parquet", ".csv", ".gz", ".zst")
# What Megatron's tool, and data_prep here, write behind the prefix that they are given: the key of
# the text, and what one sequence is (tools/preprocess_data.py).
_WRITTEN = ("_document", "_sentence")
# AutoTokenizer, behind Megatron's HuggingFaceTokenizer, takes a folder.
_TOKENIZER_FILES = (".json", ".model", ".txt", ".vocab", ".tiktoken")


# huggingface_hub, utils/_validators.py, REPO_ID_REGEX: signs stand between letters and digits.
_REPOSITORY = re.compile(r"(\b[\w.-]+\b/)?\b[\w.-]{1,96}\b", re.ASCII)


def is_repository(name: str) -> bool:
    """Tell whether the Hugging Face hub takes a name for one of a repository."""
    odd = "--" in name or ".." in name or name.endswith(".git")
    return _REPOSITORY.fullmatch(name) is not None and not odd


def check_data_paths(job: MegatronRun) -> Iterator[Finding]:
    """Yield data and tokenizers of another form."""
    data = job.data
    for path, prefix in data_prefixes(job):
        if prefix.endswith((".bin", ".idx")):
            found = f"{prefix!r} is a file, not a prefix"
            yield Finding(Code.DATA_SOURCE, path, found, f"write {prefix[:-4]}")
        elif prefix.endswith(_TEXT):
            found = f"{prefix!r} is text, and Megatron reads indexed data sets"
            remedy = "prepare it by a job of kind data_prep, and name the prefix that it writes"
            yield Finding(Code.DATA_SOURCE, path, found, remedy)
    yield from check_tokenizer(("data", "tokenizer"), data.tokenizer)


def check_ending(path: Path, prefix: str) -> Iterator[Finding]:
    """Warn of a prefix that lacks what is written behind the one that was asked for."""
    if not prefix.endswith((*_WRITTEN, *_TEXT, ".bin", ".idx")):
        found = f"{prefix!r} does not end as what Megatron's tool and data_prep write"
        remedy = f"use {prefix}_text_document, unless another tool wrote {prefix}.bin"
        yield warning(Code.DATA_SOURCE, path, found, remedy)


def check_tokenizer(path: Path, tokenizer: str) -> Iterator[Finding]:
    """Yield a file where a folder is read."""
    if tokenizer.startswith("/") and tokenizer.endswith(_TOKENIZER_FILES):
        found = f"{tokenizer} is a file of a tokenizer"
        remedy = f"name its folder: {PurePosixPath(tokenizer).parent}"
        yield Finding(Code.DATA_SOURCE, path, found, remedy)


def data_prefixes(job: MegatronRun | TorchRun) -> Iterator[tuple[Path, str]]:
    """Yield the prefix of every corpus, with its place in the file."""
    if isinstance(job, TorchRun):
        yield ("data", "dataset"), job.data.dataset
        return
    if job.data.prefix is not None:
        yield ("data", "prefix"), job.data.prefix
    for index, blend in enumerate(job.data.blend or ()):
        yield ("data", "blend", index, "prefix"), blend.prefix


_TABLE = sections("hugging_face.txt")
_OFFLINE, _GATED, _OPEN = (tuple(_TABLE[of].split()) for of in ("offline", "gated", "open"))
_TRUE = frozenset(("1", "ON", "TRUE", "YES"))


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


# No address, and nothing that a shell would fill in.
_RELATIVE = re.compile(r"(\./)?\w[\w.-]*(/[\w.-]+)*")


def outside(places: Iterable[tuple[Path, str | None]], cluster: ClusterConfig) -> Iterator[Finding]:
    """Demand a shared file system for what several nodes read or what outlives a pod.

    EFS is one too where the cluster has it: `charts/pods.py` mounts it in every pod. While Lustre's
    place itself is wrong, that is the finding, and not every path of every job.
    """
    shared = shared_mounts(cluster)
    if any(check_mount_path(cluster)):
        return
    for path, place in places:
        if place is None or place.startswith(tuple(f"{each}/" for each in shared)):
            continue
        if place in shared:
            found = f"{place} is the root of the file system, which everything shares"
            remedy = f"use a folder of its own below it: {place}/NAME"
        elif _RELATIVE.fullmatch(place):
            found = f"{place} is relative: it is looked for in the folder of the program"
            remedy = f"write {shared[0]}/{place.removeprefix('./')}"
        else:
            found = not_shared(place, efs=cluster.storage.efs)
            remedy = f"use a path below {shared[0]}/"
            if f"{place}/".startswith(f"{EFS_MOUNT_PATH}/"):
                remedy += ", or set storage.efs: true"
        yield Finding(Code.SHARED_PATH, path, found, remedy)
