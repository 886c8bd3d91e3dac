"""Draws whole projects, a cluster and its jobs, as people might write them."""

import json
from collections.abc import Sequence
from datetime import date
from typing import Any

from hypothesis import strategies as st

from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.errors import has_errors
from megatron_eks.config.job import AnyJob
from megatron_eks.config.load import Document, read_mapping
from megatron_eks.config.outputs import read_outputs
from megatron_eks.config.parse import parse_cluster, parse_job
from megatron_eks.plan.cluster.cluster import ClusterPlan, check_cluster, plan_cluster
from megatron_eks.plan.jobs.table import check_job, plan_job
from tests.charts import rendered
from tests.charts.rendered import Manifest
from tests.stacks.synthesis import ROOT, TAGS, cluster_file

Json = dict[str, Any]
TODAY = date(2026, 11, 21)

_JOBS = [read_mapping(file.read_text(), "j").value for file in sorted((ROOT / "jobs").iterdir())]
_REPOSITORIES = {"megatron": "r.example.com/megatron:1", "fsdp": "r.example.com/fsdp:1"}

_TYPES = ("p4d.24xlarge", "p4de.24xlarge", "p5.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge")
_SMALL = ("g5.12xlarge", "g6.48xlarge", "g6e.48xlarge", "p5.4xlarge")

_pool = st.fixed_dictionaries(
    {
        "name": st.just("p4d"),
        "instance_type": st.sampled_from(_TYPES + _SMALL),
        "availability_zone": st.sampled_from(["us-east-2a", "us-east-2b"]),
        "max_nodes": st.sampled_from([2, 16]),
    },
    optional={"capacity": st.sampled_from([{"type": "on_demand"}, {"type": "spot"}])},
)
_runtime = st.fixed_dictionaries(
    {},
    optional={
        "env": st.dictionaries(
            st.sampled_from(["NCCL_DEBUG", "WANDB_MODE", "A_B", "TORCH_NCCL_TRACE_BUFFER_SIZE"]),
            st.sampled_from(["1", "INFO", "a: b", "x" * 40, "a\nb", "-", "true", "1e3"]),
            max_size=2,
        ),
        "shm_gib": st.sampled_from([1, 16, 128]),
        "gang_restarts": st.integers(0, 5),
        "rendezvous": st.sampled_from(["static", "c10d", "etcd"]),
        "host_network": st.booleans(),
        "ipc_lock": st.booleans(),
        "keep_days": st.integers(1, 365),
    },
)
_changes = st.fixed_dictionaries(
    {},
    optional={
        "name": st.from_regex(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?", fullmatch=True),
        "nodes": st.sampled_from([1, 2, 4]),
        "runtime": _runtime,
        "parallelism": st.fixed_dictionaries(
            {"tensor": st.sampled_from([1, 2, 4, 8]), "pipeline": st.sampled_from([1, 2])}
        ),
    },
)
_cluster = st.fixed_dictionaries({"gpu_pools": st.lists(_pool, min_size=1, max_size=1)})


class Drawn:
    """A drawn cluster with the drawn jobs that its checks accept; None of a refused cluster."""

    def __init__(self, cluster: Json, jobs: Sequence[Json]) -> None:
        config = _accepted(cluster)
        self.jobs: list[AnyJob] = []
        self.plan: ClusterPlan | None = None
        if config is None:
            return
        for body in jobs:
            job, _ = parse_job(read_mapping(json.dumps(body), "j"))
            if job is not None and not has_errors(check_job(job, config)):
                self.jobs.append(job)
        self.plan = plan_cluster(config, TAGS, self.jobs)

    def manifests(self) -> list[Manifest]:
        """Render everything, as before a deployment."""
        assert self.plan is not None
        suffixes = [each.output_suffix for each in self.plan.storage.file_systems]
        outputs, _ = read_outputs(None, self.plan.name, _REPOSITORIES, suffixes=suffixes)
        planned = [plan_job(job, self.plan, outputs.images) for job in self.jobs]
        jobs = rendered.jobs(*planned, plan=self.plan) if planned else []
        return [
            *rendered.platform(self.plan, outputs),
            *rendered.validation(self.plan),
            *jobs,
        ]


def _accepted(cluster: Json) -> ClusterConfig | None:
    config, _ = parse_cluster(Document("c", value=cluster))
    refused = config is None or has_errors(check_cluster(config, TODAY))
    return None if refused else config


def _project(cluster: Json, jobs: list[tuple[Any, Json]]) -> Drawn:
    merged = []
    for number, (job, changes) in enumerate(jobs):
        known = {key: value for key, value in changes.items() if key in job or key == "runtime"}
        name = f"{known.get('name', job['name'])[:44]}-{number}"
        runtime = {**job.get("runtime", {}), **known.get("runtime", {})}
        merged.append({**job, **known, "name": name, "runtime": runtime})
    return Drawn({**cluster_file(), **cluster}, merged)


projects: st.SearchStrategy[Drawn] = st.builds(
    _project,
    _cluster,
    st.lists(
        st.tuples(st.sampled_from(_JOBS), st.just({}) | _changes),
        min_size=2,
        max_size=4,
        # Two of one file would save to one directory, which is a mistake.
        unique_by=lambda each: str(each[0]["name"]),
    ),
)
