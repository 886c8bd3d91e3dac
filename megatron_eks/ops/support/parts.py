"""The parts of a support bundle: each a name and a function that reads it, and may fail alone."""

import os
import platform as machine
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from megatron_eks import __version__
from megatron_eks.catalog.workloads import WORKLOADS
from megatron_eks.config.errors import Finding
from megatron_eks.kubernetes.client import Client, Object
from megatron_eks.ops import checks
from megatron_eks.ops.cluster import preflight
from megatron_eks.ops.jobs import diagnosis, logs, nodes
from megatron_eks.ops.kube import jobs, teams
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.kube.objects import CLUSTER_LABEL
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.project import OUTPUTS, Project, job_files

FILES = "files/"
"""Where a bundle has the files of this machine."""

_TAIL = 2000
# A job of a thousand ranks says in its first ones what the others say too.
_RANKS = 64
_LOG_BYTES = 4 * 1024 * 1024
_FILE_BYTES = 1024 * 1024
_PACKAGES = ("aws-cdk-lib", "boto3", "cdk8s", "cdk8s-plus-27", "pydantic", "websockets")

# Secrets are not read at all.
KINDS = (
    ("v1", "Pod"),
    ("v1", "ConfigMap"),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "ResourceQuota"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "Deployment"),
    *((each.api_version, each.kind) for each in WORKLOADS.values()),
    *((each.api_version, each.runtime) for each in WORKLOADS.values() if each.runtime),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    # Last: what objects hide is taken out of messages about them as well.
    ("v1", "Event"),
)
OF_THE_CLUSTER = (
    ("v1", "Node"),
    ("v1", "Namespace"),
    ("v1", "PersistentVolume"),
    ("storage.k8s.io/v1", "StorageClass"),
    ("storage.k8s.io/v1", "CSIDriver"),
    ("scheduling.k8s.io/v1", "PriorityClass"),
)


Kind = Literal["data", "text", "plan", "findings", "configuration", "outputs", "objects"]
"""What a part holds, by which it is decided what of it is shown."""


@dataclass(frozen=True)
class Part:
    """One file of a bundle."""

    name: str
    read: Callable[[], Any]
    kind: Kind = "data"
    """Data, plan and objects become JSON; the others are text."""

    @property
    def asks(self) -> bool:
        """Whether the API server is asked for it."""
        return self.kind in {"data", "objects"}


def versions() -> Mapping[str, object]:
    """Return what runs here."""
    return {
        "meks": __version__,
        "python": sys.version,
        "system": machine.platform(),
        "packages": {name: metadata.version(name) for name in _PACKAGES},
    }


def of_files(cluster_file: Path) -> Iterator[Part]:
    """Yield the files that the project is made of."""
    folder = cluster_file.parent.resolve()
    kinds: dict[Path, Kind] = {
        cluster_file: "configuration",
        cluster_file.with_name(OUTPUTS): "outputs",
    }
    for path, kind in kinds.items():
        if os.path.lexists(path):
            yield Part(f"{FILES}{path.name}", partial(_text, path, folder), kind)
    for path in job_files(cluster_file):
        yield Part(f"{FILES}jobs/{path.name}", partial(_text, path, folder), "configuration")


def of_findings(findings: Iterable[Finding]) -> Part:
    """Return what the checks found."""
    return Part("findings.txt", lambda: "".join(f"{each}\n" for each in findings), "findings")


def of_cluster(access: Access, project: Project, job: str | None) -> Iterator[Part]:
    """Yield what the cluster knows; with a job, of the namespace of jobs only what is its own."""
    client, plan = access.client, project.cluster
    yield Part("kubernetes/version.json", lambda: client.request("GET", "/version"))
    for version, kind in OF_THE_CLUSTER:
        yield Part(f"kubernetes/{kind}.json", partial(client.list, version, kind), "objects")

    def objects(version: str, kind: str) -> list[Object]:
        found = ({**each, "kind": kind} for each in client.list(version, kind))
        return [each for each in found if _concerns(each, plan, job)]

    for version, kind in KINDS:
        yield Part(f"kubernetes/{kind}.json", partial(objects, version, kind), "objects")
    yield Part("nodes.json", lambda: [asdict(each) for each in nodes.read(client, plan)])
    judged = partial(preflight.cluster, access, project)
    yield Part("preflight.json", lambda: checks.as_json(plan, judged()))


def of_job(client: Client, project: Project, name: str) -> Iterator[Part]:
    """Yield what a job's ranks said, and what is made of it. Raises Failure without such a job."""
    project = teams.narrowed(client, project, None, None, name)
    job = jobs.get(client, project.cluster.platform.namespace, name)
    options = logs.Options(tail=_TAIL)
    for rank in jobs.ranks(job, jobs.pods_of(client, job))[:_RANKS]:
        if rank.pod is None:
            continue
        for previous in (False, True) if rank.pod.restarts else (False,):
            wanted = logs.Options(tail=_TAIL, previous=previous)
            read = partial(_log, logs.printed(client, job.namespace, rank, wanted))
            ending = "-previous" if previous else ""
            yield Part(f"logs/{name}/rank-{rank.number}{ending}.log", read, "text")
    yield Part(
        f"logs/{name}/diagnosis.json",
        lambda: asdict(diagnosis.of_job(client, project.cluster, name, options)),
    )


def _text(path: Path, folder: Path) -> str:
    found = path.resolve(strict=True)
    if not found.is_relative_to(folder):
        raise OSError(f"a link out of {folder.name}/")
    if not found.is_file():
        raise OSError("no regular file")
    # Nothing may take the place of what was looked at.
    number = os.open(found, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(number, encoding="utf-8", errors="backslashreplace") as file:
        return file.read(_FILE_BYTES)


def _log(lines: Iterator[str]) -> str:
    """Return the end of a log: lines may be long."""
    text = "".join(f"{line}\n" for line in lines)
    return text[-_LOG_BYTES:]


def _concerns(found: Object, plan: ClusterPlan, job: str | None) -> bool:
    described = found["metadata"]
    namespace = described.get("namespace")
    if namespace in plan.platform.namespaces:
        about = (found.get("involvedObject") or {}).get("name", "")
        labels = (described.get("labels") or {}).values()
        names = (described["name"], about, *labels)
        return job is None or any(str(name).startswith(job) for name in names)
    if (described.get("labels") or {}).get(CLUSTER_LABEL) == plan.name:
        return True
    # Add-ons, the operator, and events about nodes; what else they configure is not ours.
    platform = plan.platform
    others = {platform.system_namespace, "kube-system", "default"}
    others |= {each.controller[0] for each in platform.workloads if each.controller}
    return namespace in others and found["kind"] != "ConfigMap"
