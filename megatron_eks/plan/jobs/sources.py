"""Whether paths are of the kind that is read there, and lie where all nodes see them."""

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from megatron_eks.catalog.models import tokens
from megatron_eks.catalog.tables import sections
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Path, has_errors, warning
from megatron_eks.config.job import AnyJob, DataPrepJob, FetchJob, MegatronRun, Run, TorchRun
from megatron_eks.plan.cluster.egress import has_no_way_out
from megatron_eks.plan.cluster.storage import EFS_MOUNT_PATH, check_mount_path, not_shared
from megatron_eks.plan.jobs.environment import mounts, shared_mounts
from megatron_eks.plan.jobs.models import check_model, model_shape

# Text that tools/preprocess_data.py reads; the data set of it is what training reads.
_TEXT = (".jsonl", ".json", ".ndjson", ".txt", ".parquet", ".csv", ".gz", ".zst")
# What Megatron's tool, and data_prep here, write behind the prefix that they are given: the key of
# the text, and what one sequence is (tools/preprocess_data.py).
_WRITTEN = ("_document", "_sentence")
# AutoTokenizer, behind Megatron's HuggingFaceTokenizer, takes a folder.
_TOKENIZER_FILES = (".json", ".model", ".txt", ".vocab", ".tiktoken")


# huggingface_hub, utils/_validators.py, REPO_ID_REGEX: signs stand between letters and digits.
_REPOSITORY = re.compile(r"(\b[\w.-]+\b/)?\b[\w.-]{1,96}\b", re.ASCII)

_TABLE = sections("hugging_face.txt")
_OFFLINE, _GATED, _OPEN = (tuple(_TABLE[of].split()) for of in ("offline", "gated", "open"))
_TRUE = frozenset(("1", "ON", "TRUE", "YES"))

# No address, and nothing that a shell would fill in.
_RELATIVE = re.compile(r"(\./)?\w[\w.-]*(/[\w.-]+)*")


def is_repository(name: str) -> bool:
    """Tell whether the Hugging Face hub takes a name for one of a repository."""
    odd = "--" in name or ".." in name or name.endswith(".git")
    return _REPOSITORY.fullmatch(name) is not None and not odd


def check_data_paths(job: MegatronRun) -> Findings:
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


def check_ending(path: Path, prefix: str) -> Findings:
    """Warn of a prefix that lacks what is written behind the one that was asked for."""
    if not prefix.endswith((*_WRITTEN, *_TEXT, ".bin", ".idx")):
        found = f"{prefix!r} does not end as what Megatron's tool and data_prep write"
        remedy = f"use {prefix}_text_document, unless another tool wrote {prefix}.bin"
        yield warning(Code.DATA_SOURCE, path, found, remedy)


def check_tokenizer(path: Path, tokenizer: str) -> Findings:
    """Yield a file where a folder is read."""
    if tokenizer.startswith("/") and tokenizer.endswith(_TOKENIZER_FILES):
        remedy = f"name its folder: {PurePosixPath(tokenizer).parent}"
        yield Finding(Code.DATA_SOURCE, path, f"{tokenizer} is a file of a tokenizer", remedy)


def data_prefixes(job: Run) -> list[tuple[Path, str]]:
    """Return the prefix of every corpus, with its place in the file."""
    return [(path, place) for path, kind, place in job.used("reads") if kind == "data"]


def from_the_hub(
    job: FetchJob | TorchRun, path: Path, name: str, cluster: ClusterConfig
) -> Findings:
    """Demand a way out, and a token where it is asked for, for what comes from Hugging Face."""
    for variable in _OFFLINE:
        if job.runtime.env.get(variable, "").upper() in _TRUE:
            found = f"{variable}: {name} comes from Hugging Face, which nobody asks then"
            remedy = "remove it, or bring the files by a job of kind fetch and name their folder"
            yield Finding(Code.ENVIRONMENT_REFUSED, ("runtime", "env", variable), found, remedy)
    if has_no_way_out(cluster):
        found = f"{name} comes from Hugging Face, and the cluster has neither NAT nor proxy"
        remedy = "bring it to S3 and fetch it from there, or set network.proxy"
        yield Finding(Code.NO_WAY_OUT, path, found, remedy)
    if not job.token_secret and name.startswith(_GATED) and not name.startswith(_OPEN):
        remedy = "name a Kubernetes Secret with a key `token`: token_secret: hugging-face"
        yield Finding(Code.GATED, path, f"{name} is gated, and the job has no token", remedy)


def unwritable(place: str, cluster: ClusterConfig, *, shared: bool) -> tuple[str, str] | None:
    """Say why a run cannot write to a place, which all its nodes read again if it is `shared`."""
    writable, mount = mounts(cluster), cluster.storage.lustre.mount_path
    below = [each for each in writable if place.startswith(f"{each}/")]
    if "://" in place or (below and (not shared or mount in below)):
        return None
    found = f"a pod may not write to {place}: all but its mounts is read-only"
    if below:
        found = f"{place} is not on the shared file system, so other nodes do not see it"
    return found, f"use a path below {mount}/"


def outside(places: Iterable[tuple[Path, str | None]], cluster: ClusterConfig) -> Findings:
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


def check_vocabulary(job: Run, others: Sequence[AnyJob]) -> Findings:
    """Yield a tokenizer that is not the model's: by what its name says, or what is fetched."""
    count = tokens_of(job.data.tokenizer, others)
    if count is None or has_errors(check_model(job.model)):
        return
    rows = model_shape(job.model).vocab_size
    path = ("data", "tokenizer")
    if count > rows:
        found = f"{job.data.tokenizer} has {count} tokens, and the model knows {rows}"
        remedy = "use the model's own tokenizer"
        if job.checkpoint.pretrained is None:
            remedy = f"{remedy}, or set model.vocab_size: {count}"
        yield Finding(Code.VOCABULARY, path, found, remedy)
    elif job.checkpoint.pretrained is not None and count < rows // 2:
        found = f"{job.data.tokenizer} has {count} tokens, and the weights were made with {rows}"
        yield warning(Code.VOCABULARY, path, found, "use the base weights' tokenizer")


def tokens_of(tokenizer: str, others: Sequence[AnyJob]) -> int | None:
    """Return the number of tokens of a tokenizer, by what a job fetches or by its name."""
    for other in others:
        if isinstance(other, FetchJob) and other.directory == tokenizer:
            name = other.tokenizer or other.model
            return tokens(name) if name else tokens(tokenizer)
    return tokens(tokenizer)


def check_prepared(job: Run, path: Path, prefix: str, others: Sequence[AnyJob]) -> Findings:
    """Compare a data set that is read with those that are made."""
    preparations = [each for each in others if isinstance(each, DataPrepJob)]
    makers = [each for each in preparations if prefix in prepared(each)]
    for maker in makers:
        yield from _tokens_of_data(job, maker, others)
    for preparation in preparations if not makers else ():
        made, base = prepared(preparation), preparation.output_prefix
        if base.endswith("_document"):
            continue  # it has a finding of its own
        if prefix == base:
            found = f"{preparation.name} writes {made[0]}"
            yield Finding(Code.DATA_SOURCE, path, found, f"use {made[0]}")
        elif re.fullmatch(rf"{re.escape(base)}_[^_/]+_document", prefix):
            found = f"{preparation.name} writes {' and '.join(made)}, and no job writes {prefix}"
            remedy = f"use {made[0]}, or name the key in json_keys of {preparation.name}"
            yield warning(Code.DATA_SOURCE, path, found, remedy)


def _tokens_of_data(job: Run, maker: DataPrepJob, others: Sequence[AnyJob]) -> Findings:
    tokenizer, path = job.data.tokenizer, ("data", "tokenizer")
    mine, theirs = tokens_of(tokenizer, others), tokens_of(maker.tokenizer, others)
    if mine is not None and theirs is not None and mine != theirs:
        found = f"{mine} tokens, and {maker.name} made the data with {theirs}"
        remedy = f"use {maker.tokenizer}, or prepare the data with {tokenizer}"
        if not has_errors(check_model(job.model)) and model_shape(job.model).vocab_size == mine:
            remedy = f"prepare the data again: set tokenizer: {tokenizer} in {maker.name}"
        yield Finding(Code.VOCABULARY, path, found, remedy)
    elif maker.tokenizer != tokenizer and not any(check_tokenizer((), maker.tokenizer)):
        found = f"{maker.name} makes its tokens with {maker.tokenizer}"
        yield warning(Code.DATA_SOURCE, path, found, "use the same, or tokens mean other words")


def prepared(preparation: DataPrepJob) -> list[str]:
    """Return the prefixes of the data sets that a preparation writes, one a key."""
    return [place for *_, place in preparation.used("writes")]
