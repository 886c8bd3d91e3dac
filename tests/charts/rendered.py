"""Plans of the default cluster and its job, and what the charts make of such plans."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import cdk8s

from megatron_eks.catalog.workloads import WITH_PODS, WORKLOADS, templates
from megatron_eks.charts import composition
from megatron_eks.config.load import Document, read_mapping
from megatron_eks.config.outputs import Outputs, read_outputs
from megatron_eks.config.parse import parse_cluster, parse_job
from megatron_eks.plan.cluster.cluster import ClusterPlan, plan_cluster
from megatron_eks.plan.jobs.job import JobPlan
from megatron_eks.plan.jobs.table import plan_job
from megatron_eks.plan.jobs.validation import plan_validation

# An object as JSON, which has no narrower type.
Manifest = dict[str, Any]

_ROOT = Path(__file__).parents[2]
_TAGS = {"megatron": "0123abcd", "fsdp": "4567cdef"}

REGISTRY = "111122223333.dkr.ecr.us-east-2.amazonaws.com"
DIGEST = f"@sha256:{'0123456789abcdef' * 4}"

# What the controller of Jobs adds to pods.
JOB_LABEL = "batch.kubernetes.io/job-name"
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"

# What `cdk deploy` writes before and after the digests of the images are known.
STORAGE = {
    "LustreId": "fs-0123456789abcdef0",
    "LustreDnsName": "fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com",
    "LustreMountName": "abcdefgh",
}
TAGGED = {
    "techpulse-Storage": STORAGE,
    "techpulse-Images": {"MegatronImage": f"{REGISTRY}/megatron-training:0123abcd"},
}
DEPLOYED = {
    "techpulse-Storage": STORAGE,
    "techpulse-Images": {
        "MegatronImage": f"{REGISTRY}/megatron-training{DIGEST}",
        "FsdpImage": f"{REGISTRY}/fsdp{DIGEST}",
    },
}


@dataclass(frozen=True)
class Pod:
    """A pod that some object of the charts makes, or a template of one."""

    owner: Manifest
    namespace: str
    labels: Mapping[str, str]
    spec: Manifest

    @property
    def container(self) -> Manifest:
        """The pod's only container."""
        (container,) = self.spec["containers"]
        return dict(container)


@cache
def cluster() -> ClusterPlan:
    """Plan the cluster of the file that a checkout starts with."""
    config, findings = parse_cluster(_document("cluster.yaml"))
    assert config, findings
    return plan_cluster(config, _TAGS)


@cache
def outputs(stacks: str = "null") -> Outputs:
    """Read outputs from the JSON of `outputs.json`, or make up placeholders from none."""
    document = None if stacks == "null" else read_mapping(stacks, "outputs.json")
    repositories: Mapping[str, str] = {
        str(image.name): f"{image.repository}:{image.tag}" for image in cluster().images
    }
    result, findings = read_outputs(document, cluster().name, repositories)
    assert not findings
    return result


def deployed() -> Outputs:
    """Return outputs without a placeholder."""
    return outputs(json.dumps(DEPLOYED))


@cache
def training_job(
    stacks: str = json.dumps(DEPLOYED), name: str = "megatron-cpt-techpulse"
) -> JobPlan:
    """Plan one of the jobs that a checkout starts with."""
    config, findings = parse_job(_document(f"jobs/{name}.yaml"))
    assert config is not None, findings
    return plan_job(config, cluster(), outputs(stacks).images)


def shipped_jobs(stacks: str = json.dumps(DEPLOYED)) -> list[JobPlan]:
    """Plan all jobs that a checkout starts with."""
    files = sorted((_ROOT / "jobs").iterdir())
    return [training_job(stacks, file.stem) for file in files]


def other_platform(plan: ClusterPlan | None = None, **changes: Any) -> ClusterPlan:
    """Return a plan whose platform differs in some fields."""
    plan = plan or cluster()
    return replace(plan, platform=replace(plan.platform, **changes))


def platform(plan: ClusterPlan | None = None, outs: Outputs | None = None) -> list[Manifest]:
    """Render everything that runs before a job."""
    return _render(
        lambda app: composition.build_platform(app, plan or cluster(), outs or deployed())
    )


def platform_files(workload: str, **changes: Any) -> dict[str, list[Manifest]]:
    """Render the platform of another kind of jobs, by file without its number."""
    app = cdk8s.App()
    plan = other_platform(workload=workload, **changes)
    charts = composition.build_platform(app, plan, deployed())
    return {name[3:]: cdk8s.Testing.synth(chart) for name, chart in charts.items()}


def validation(plan: ClusterPlan | None = None) -> list[Manifest]:
    """Render the tests of the pools."""
    chosen = plan or cluster()
    plans = plan_validation(chosen, deployed().images)
    return _render(lambda app: composition.build_validation(app, chosen, plans))


def jobs(*plans: JobPlan, plan: ClusterPlan | None = None) -> list[Manifest]:
    """Render jobs, or the default one."""
    chosen = plans or (training_job(),)
    return _render(lambda app: composition.build_jobs(app, plan or cluster(), chosen))


def only(manifests: list[Manifest], kind: str, name: str | None = None) -> Manifest:
    """Return the one object of a kind, and of a name if one is given."""
    found = [
        manifest
        for manifest in manifests
        if manifest["kind"] == kind and name in {None, manifest["metadata"]["name"]}
    ]
    assert len(found) == 1, f"{kind} {name}: {len(found)}"
    return found[0]


def pods(manifests: list[Manifest]) -> Iterator[Pod]:
    """Find the pods of all workloads; a PyTorchJob has one for each role.

    Those of an Indexed Job carry the label that its controller adds.
    """
    for manifest in manifests:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        spec = manifest.get("spec", {})
        found = [spec["template"]] if "template" in spec else []
        for template in [each for _, each in templates(manifest)] if kind in WITH_PODS else found:
            added = {INDEX_LABEL: "0"} if spec.get("completionMode") == "Indexed" else {}
            if kind in {"Job", "JobSet"}:
                added[WORKLOADS[kind].job_label] = name
            yield Pod(
                manifest,
                manifest["metadata"]["namespace"],
                {**template["metadata"]["labels"], **added},
                template["spec"],
            )


def pod(manifest: Manifest) -> Pod:
    """Return the pod of one workload."""
    (found,) = pods([manifest])
    return found


def _document(path: str) -> Document:
    return read_mapping((_ROOT / path).read_text(encoding="utf-8"), path)


def _render(build: Callable[[cdk8s.App], composition.Charts]) -> list[Manifest]:
    app = cdk8s.App()
    build(app)
    return [manifest for chart in app.charts for manifest in cdk8s.Testing.synth(chart)]
