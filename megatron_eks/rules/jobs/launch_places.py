"""Rules over which launcher's options reach it, and which number each of its nodes gets."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.rules.jobs.rendezvous import launcher_flags
from megatron_eks.rules.jobs.replicated_jobs import ReplicatedJob, replicated_jobs
from megatron_eks.rules.jobs.training_flags import split_words
from megatron_eks.rules.values import items, mapping, number, shown, text
from megatron_eks.rules.workloads import Container, Manifest

_TORCHRUN = re.compile(r"(\S*/)?torchrun|torch\.distributed\.(run|launch)")
_ITS_OWN = re.compile(r"--(nproc[-_]per[-_]node|standalone|rdzv[-_][a-z_-]+)(=.*)?")
_PROGRAM = re.compile(r"[^$-].*\.py")
_ENDS = frozenset({"&&", "||", ";", "|", "&", ">", ">>", "2>&1"})
_INDEX = "JOB_COMPLETION_INDEX"
_INDEX_FIELD = "job-completion-index"
_JOB_FIELD = re.compile(r"jobset\.sigs\.k8s\.io/job-(global-)?index")
_NAME = re.compile(r"\$[({]?(?P<name>[A-Za-z_]\w*)[)}]?")
_MAY_HOLD_MORE = re.compile(r"\$[{]?([@*]|\w*(ARG|OPT|FLAG|PARAM|CONF))", re.IGNORECASE)
_UNNUMBERED = frozenset({("batch", "Job"), ("jobset.x-k8s.io", "JobSet")})
_TOLD = frozenset({"PET_NODE_RANK", "PET_RDZV_ENDPOINT", "PET_RDZV_BACKEND"})


def behind_the_program(manifest: Manifest) -> Iterator[Finding]:
    """Refuse torchrun's options behind the program, which gets them in its place.

    torch/distributed/run.py: training_script_args is argparse.REMAINDER.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            if container.is_init or not container.has_launcher:
                continue
            words = [(path, word) for path, line in container.words for word in split_words(line)]
            lost = list(_behind(words))
            if lost:
                path, word = lost[0]
                found = f"{shown(word)} behind the program, which gets it, and torchrun does not"
                remedy = "write it before the program's name"
                yield Finding(Code.RENDEZVOUS_FLAG, path, found, remedy)


def _behind(words: list[tuple[Path, str]]) -> Iterator[tuple[Path, str]]:
    """Return what only torchrun reads and stands behind its program."""
    launched = program = False
    before: set[str] = set()
    for path, word in words:
        if word in _ENDS:
            launched = program = False
            before = set()
        elif _TORCHRUN.fullmatch(word):
            launched = True
        elif launched and not program and _PROGRAM.fullmatch(word):
            program = True
        elif launched and _ITS_OWN.fullmatch(word):
            name = word.partition("=")[0].replace("_", "-")
            if not program:
                before.add(name)
            # A program may read for itself what its launcher was told too.
            elif name not in before:
                yield path, word


def numbered(manifest: Manifest) -> Iterator[Finding]:
    """Require of the launcher in a Job, or in a set of them, the number of its node.

    torch/distributed/run.py, --node-rank: 0 by default, and read by the static rendezvous.
    """
    # Other operators hand numbers out.
    if (manifest.group, manifest.kind) not in _UNNUMBERED:
        return
    for pod in manifest.pods:
        for container in pod.containers if (pod.replicas or 1) > 1 else ():
            flags = {name: (path, value) for path, name, value in launcher_flags(container)}
            nodes = number(flags["nnodes"][1]) if "nnodes" in flags else None
            backend = flags.get("rdzv-backend", ((), "static"))[1]
            known = container.is_init or not container.has_launcher or "node-rank" in flags
            told = any(each.name in _TOLD for each in container.variables)
            if known or told or (nodes or 1) < 2 or backend != "static":  # noqa: PLR2004 -- two nodes
                continue
            if "master-addr" not in flags or _MAY_HOLD_MORE.search(container.line):
                continue
            if container.body.get("envFrom"):
                continue
            found = f"--nnodes {nodes} and no --node-rank: each pod is node 0"
            remedy = f"add --node-rank=${_INDEX}, of an Indexed Job"
            yield Finding(Code.RENDEZVOUS_FLAG, flags["nnodes"][0], found, remedy)


def of_one_job(manifest: Manifest) -> Iterator[Finding]:
    """Refuse the index in a Job as the number of a node, where ranks are in several Jobs of a set.

    kubernetes-sigs/jobset, "Concepts", replicatedJobs[].replicas: so many Jobs, and Kubernetes
    counts the pods of each from 0; labels tell the Job's number and that in the whole set.
    """
    for job in replicated_jobs(manifest):
        pods = number(job.spec.get("completions", job.spec.get("parallelism", 1)))
        total = (job.replicas or 1) * (pods or 1)
        for pod in manifest.pods if total > 1 else ():
            if pod.path[1 : 1 + len(job.path)] != job.path:
                continue
            for container in pod.containers:
                flags = {name: (path, value) for path, name, value in launcher_flags(container)}
                nodes = number(flags["nnodes"][1]) if "nnodes" in flags else None
                if nodes == total and "node-rank" in flags:
                    path, rank = flags["node-rank"]
                    yield from _repeated(container, path, rank, job, pods or 1)


def _repeated(
    container: Container, path: Path, rank: str, job: ReplicatedJob, pods: int
) -> Iterator[Finding]:
    match = _NAME.fullmatch(rank)
    own = next((each for each in container.variables if match and each.name == match["name"]), None)
    source = _field_of(container, own.index) if own is not None else ""
    if _JOB_FIELD.search(source) and pods > 1:
        found = f"--node-rank {shown(rank)} is one number in all {pods} pods of a Job: none is "
        found += "another rank"
        remedy = "take batch.kubernetes.io/job-completion-index"
        yield Finding(Code.RENDEZVOUS_FLAG, path, found, remedy)
        return
    if (job.replicas or 1) < 2:  # noqa: PLR2004 -- two Jobs
        return
    by_index = match is not None and own is None and match["name"] == _INDEX
    if by_index or _INDEX_FIELD in source or (own is not None and _INDEX in (own.value or "")):
        each = "0" if pods == 1 else f"0 to {pods - 1}"
        found = f"--node-rank {shown(rank)} is {each} in each of the {job.replicas} Jobs: none is "
        found += "another rank"
        remedy = "write replicas: 1 and as many completions and parallelism, or take the label"
        remedy += " jobset.sigs.k8s.io/job-global-index"
        yield Finding(Code.RENDEZVOUS_FLAG, path, found, remedy)


def _field_of(container: Container, index: int) -> str:
    entry = mapping((items(container.body.get("env")) or [])[index]) or {}
    source = mapping((mapping(entry.get("valueFrom")) or {}).get("fieldRef")) or {}
    return text(source.get("fieldPath")) or ""
