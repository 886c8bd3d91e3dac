"""By code, what makes the check find it that reports a trouble of the guides."""

from collections.abc import Callable, Iterable
from datetime import date
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest

from megatron_eks.config.errors import Finding
from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import parse_cluster, parse_job
from megatron_eks.guards.codes import Rule
from megatron_eks.kubernetes.connection import UnreachableError
from megatron_eks.ops.checks import judged
from megatron_eks.ops.cluster.inside import checks as kube_checks
from megatron_eks.ops.cluster.inside.live import Live, Plugin
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.jobs import logs
from megatron_eks.ops.jobs.checklist import CHECKLIST, Run
from megatron_eks.ops.jobs.room import NodeRoom
from megatron_eks.ops.jobs.verdicts import Ended, verdict
from megatron_eks.ops.kube import access
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.kube.jobs import Rank
from megatron_eks.plan.jobs.table import check_job
from megatron_eks.project import ROOT, load_project
from tests.guards import slips
from tests.ops.aws.preflight import subjects

_JOB = "megatron-cpt-techpulse"
_DIGEST = f"r/megatron@sha256:{'a' * 64}"
PLAN = load_project(ROOT / "cluster.yaml", date(2026, 11, 22)).cluster


def codes(findings: Iterable[Finding]) -> set[str]:
    """Return the codes of findings."""
    return {finding.code for finding in findings}


def job_file(old: str, new: str, name: str = _JOB) -> set[str]:
    """Check a shipped job file with one change."""
    text = (ROOT / "jobs" / f"{name}.yaml").read_text()
    assert old in text
    cluster, _ = parse_cluster(read_mapping((ROOT / "cluster.yaml").read_text(), "c.yaml"))
    assert cluster is not None
    document = read_mapping(text.replace(old, new, 1), "j.yaml")
    job, found = parse_job(document)
    return codes([*found, *(check_job(job, cluster) if job is not None else ())])


def variable(assignment: str) -> set[str]:
    """Check the job file with a variable in its environment."""
    return job_file(
        "\nmodel: llama-3.1-8b", f"\nruntime: {{env: {{{assignment}}}}}\nmodel: llama-3.1-8b"
    )


def manifest(path: str, value: object) -> set[str]:
    """Check the shipped job's manifest with one change in the pods of all ranks."""
    return {Rule[name] for name in slips.in_ranks(_JOB, path, value)}


def template(resource: str, path: str, value: object) -> set[str]:
    """Check the default cluster's templates with one change."""
    return {Rule[name] for name in slips.in_template(resource, path, value)}


class Empty:
    """An API server that knows of nothing."""

    def list(self, *_: object, **_fields: object) -> list[object]:
        """Return no object."""
        return []

    def find(self, *_: object) -> None:
        """Return that there is none."""

    serves = find


def cluster(check: Callable[[Live], Iterable[Finding]], **there: Any) -> set[str]:
    """Make one check of an empty cluster, but for what is there."""
    client: Any = Empty()
    secrets = [SimpleNamespace(secret="hugging-face", key="token")]  # noqa: S106 -- a name
    project: Any = SimpleNamespace(
        cluster=PLAN, jobs=[SimpleNamespace(name="j", team=None, secret_entries=secrets)]
    )
    live = Live(Access(client, is_local=False), project)
    vars(live).update(there)
    return codes(check(live))


def node(**devices: int) -> set[str]:
    """Judge a node of the pool that offers this."""
    offered = {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 4} | {
        f"{'nvidia.com' if name == 'gpu' else 'vpc.amazonaws.com'}/{name}": number
        for name, number in devices.items()
    }
    amounts = {name: Fraction(number) for name, number in offered.items()}
    room = NodeRoom(
        name="n",
        ready=True,
        cordoned=False,
        labels={"megatron-eks/pool": "p4d", "node.kubernetes.io/instance-type": "p4d.24xlarge"},
        taints=(),
        allocatable=amounts,
        free=amounts,
    )
    return cluster(kube_checks.gpus, nodes=[room]) | cluster(kube_checks.efa, nodes=[room])


def account(tmp_path: Any, **answers: Any) -> set[str]:
    """Judge what AWS says of an account."""
    found = subjects.project(tmp_path)
    results = subjects.judged(found, subjects.deployed(found), **answers)
    return codes(finding for result in results for finding in result.findings)


def file_system(state: str) -> Any:
    """Return the file system of the outputs."""
    return {"FileSystems": [subjects.SYSTEM | {"Lifecycle": state}]}


def ended(log: str, phase: str = "Failed") -> set[str]:
    """Judge the end of a check on the hardware."""
    return codes(verdict(Ended("check-p4d", phase, "", log)).findings)


def checklist(log: str) -> set[str]:
    """Judge a running job by its log."""
    devices = {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "4"}
    container = {"image": _DIGEST, "resources": {"limits": devices}, "command": ["torchrun"]}
    pod = {"containers": [container], "nodeSelector": {"megatron-eks/pool": "p4d"}}
    ranks = [Rank(number, None, None) for number in range(2)]
    results = judged(CHECKLIST, Run("job", ranks, pod, log))
    return codes(finding for result in results for finding in result.findings)


def refused(call: Callable[[], object]) -> set[str]:
    """Return the code that a command ends with."""
    with pytest.raises(Failure) as raised:
        call()
    return {raised.value.finding}


_PLUGINS = [
    Plugin("nvidia.com/gpu", "kube-system", name, ours=name == "a", nodes=frozenset({"n"}))
    for name in ("a", "b")
]
_BENCH = (
    '{"program": "allreduce_bench", "status": "done", "best_busbw_gb_s": 8.4, '
    '"best_bytes": 1024, "ranks": 16, "findings": []}\n'
)
_EFA = "vpc.amazonaws.com/efa"

# How each check is brought to find its trouble. Logs are in the rows themselves.
PROOFS: dict[str, Callable[[Any], set[str]]] = {
    "MEKS-0309": lambda _: job_file("global_batch_size: 512", "global_batch_size: 510"),
    "MEKS-0311": lambda _: job_file("tensor: 4", "tensor: 16"),
    "MEKS-0312": lambda _: job_file("tensor: 4", "tensor: 1"),
    "MEKS-0321": lambda _: (
        variable("LD_LIBRARY_PATH: /opt/own") & variable("NCCL_SOCKET_IFNAME: ens5")
    ),
    "MEKS-0323": lambda _: variable("NCCL_TIMEOUT: '1800'"),
    "MEKS-0324": lambda _: job_file("keep_last: 3", "keep_last: 30"),
    "MEKS-0337": lambda _: job_file("\ntoken_secret: hugging-face", "", name="fetch-llama-3-1-8b"),
    "MEKS-0388": lambda _: job_file(
        "pipeline: 1\ntraining:\n  micro_batch_size: 1\n  global_batch_size: 512",
        "pipeline: 4\ntraining:\n  micro_batch_size: 1\n  global_batch_size: 5",
    ),
    "MEKS-0502": lambda _: template("EC2::SecurityGroupEgress NodesToNodes", "IpProtocol", "tcp"),
    "MEKS-0601": lambda _: manifest("containers 0 name", "main"),
    "MEKS-0602": lambda _: manifest(
        "containers 0 command", ["torchrun", "--node_rank=0", "train.py"]
    ),
    "MEKS-0613": lambda _: manifest(
        "containers 0 resources",
        lambda old: {
            kind: {k: v for k, v in each.items() if k != _EFA} for kind, each in old.items()
        },
    ),
    "MEKS-0618": lambda _: manifest(
        "containers 0 env",
        lambda old: [*old[:-1], {"name": "TRITON_CACHE_DIR", "value": "/shared/triton"}],
    ),
    "MEKS-0657": lambda _: manifest("hostNetwork", value=True),
    "MEKS-0663": lambda _: manifest("containers 0 volumeMounts", lambda old: [old[0], *old[2:]]),
    "MEKS-0720": lambda _: {access.explained(UnreachableError("https://x: timed out")).finding},
    "MEKS-0734": lambda _: refused(lambda: logs.chosen([], "job", 3)),
    "MEKS-0822": lambda _: checklist("step 1/8 | loss 2.0 |\n"),
    "MEKS-0823": lambda tmp: account(tmp, get_service_quota={"Quota": {"Value": 0}}),
    "MEKS-0834": lambda tmp: account(tmp, describe_file_systems=file_system("MISCONFIGURED")),
    "MEKS-0835": lambda tmp: account(tmp, describe_images=subjects.gone("ImageNotFoundException")),
    "MEKS-0842": lambda _: node(gpu=7),
    "MEKS-0843": lambda _: node(efa=0),
    "MEKS-0846": lambda _: cluster(kube_checks.definition),
    "MEKS-0847": lambda _: cluster(kube_checks.workloads),
    "MEKS-0849": lambda _: cluster(kube_checks.webhook),
    "MEKS-0850": lambda _: cluster(kube_checks.device_plugins, plugins=_PLUGINS),
    "MEKS-0852": lambda _: cluster(kube_checks.claims),
    "MEKS-0854": lambda _: cluster(kube_checks.secrets),
    "MEKS-0860": lambda _: checklist("Using network Socket\n") & ended(_BENCH, "Succeeded"),
    "MEKS-0861": lambda _: ended("| ERR!   ERR! |", "Succeeded"),
    "MEKS-0862": lambda _: ended("nothing here", ""),
}
