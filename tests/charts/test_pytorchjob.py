"""Training jobs: what the operator accepts, what a node can hold, what a namespace lets in."""

import json
from dataclasses import replace
from typing import Any

import cdk8s
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from megatron_eks.charts import composition
from megatron_eks.config.load import read_documents
from megatron_eks.plan.jobs.job import JobPlan
from megatron_eks.plan.jobs.resources import Resources
from tests.charts.operator_rules import derived_names, refusals
from tests.charts.rendered import DEPLOYED, TAGGED, Manifest, cluster, jobs, only, training_job
from tests.charts.validation import assert_valid

MIB = {"Mi": 1, "Gi": 1024}


def render(**changes: Any) -> Manifest:
    """Render the default job with another value for some fields of its plan."""
    return only(jobs(replace(training_job(), **changes)), "PyTorchJob")


def template(job: Manifest, role: str = "Master") -> Manifest:
    """Return the pod template of a role."""
    found: Manifest = job["spec"]["pytorchReplicaSpecs"][role]["template"]
    return found


def container(job: Manifest) -> Manifest:
    """Return the container of the master, which is every rank's."""
    (found,) = template(job)["spec"]["containers"]
    return dict(found)


def mib(quantity: str) -> int:
    """Read a size as the charts write it."""
    return int(quantity[:-2]) * MIB[quantity[-2:]]


resources = st.builds(
    Resources,
    cpu_millis=st.integers(1, 400).map(lambda cores: cores * 1000),
    memory_mib=st.integers(300_000, 4_000_000),
    gpus=st.integers(1, 8),
    efa=st.integers(0, 32),
    hugepages_mib=st.sampled_from([0, 5120]),
    shm_mib=st.integers(1, 262_144),
    scratch_gib=st.integers(1, 2000),
)
names = st.from_regex(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?", fullmatch=True)
# Not printable characters are escaped in ways that readers differ about, and PyYAML alone takes
# two signs for types of their own.
texts = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=40).filter(
    lambda text: text not in {"=", "<<"}
)
TRICKY = "1e-05 1E5 .5 0770 0x1f 1_000 1:30 yes No on Off y null ~ 2026-12-01 %h.%p"
job_plans = st.builds(
    replace,
    st.just(training_job()),
    name=names,
    nodes=st.integers(1, 450),
    args=st.lists(texts, max_size=20).map(tuple),
    env=st.dictionaries(st.from_regex(r"[A-Z][A-Z0-9_]{0,20}", fullmatch=True), texts, max_size=5),
    resources=resources,
    grace_seconds=st.integers(0, 10_000),
    host_network=st.booleans(),
    ipc_lock=st.booleans(),
)


@settings(deadline=None, max_examples=40)
@given(job_plans)
def test_any_job_is_accepted(plan: JobPlan):
    """Whatever the plan says: the API server, the webhook and the name limit let it in."""
    job = only(jobs(plan), "PyTorchJob")
    assert_valid(job)
    assert list(refusals(job)) == []
    assert max(map(len, derived_names(job))) <= 63
    assert len(list(derived_names(job))) == plan.nodes


@settings(deadline=None, max_examples=25)
@given(plan=job_plans)
@example(plan=replace(training_job(), args=tuple(TRICKY.split())))
def test_texts_arrive_as_they_are(plan: JobPlan, tmp_path_factory):
    """Numbers, booleans and times in arguments stay texts for readers of YAML 1.1 and 1.2."""
    folder = tmp_path_factory.mktemp("jobs")
    app = cdk8s.App(outdir=str(folder), yaml_output_type=cdk8s.YamlOutputType.FILE_PER_CHART)
    composition.build_jobs(app, cluster(), [plan])
    app.synth()
    (file,) = folder.iterdir()
    text = file.read_text(encoding="utf-8")
    readings: list[list[Any]] = [
        list(yaml.safe_load_all(text)),
        [document.value for document in read_documents(text, file.name)],
    ]
    for documents in readings:
        found = container(only(documents, "PyTorchJob"))
        assert found["args"] == list(plan.args)
        assert {entry["name"]: entry["value"] for entry in found.get("env", ())} == plan.env


@pytest.mark.parametrize(("nodes", "workers"), [(1, None), (2, 1), (256, 255)])
def test_the_master_is_one_of_the_nodes(nodes, workers):
    """One master, and a worker for each further node; none is not the same as zero."""
    replicas = render(nodes=nodes)["spec"]["pytorchReplicaSpecs"]
    assert replicas["Master"]["replicas"] == 1
    assert replicas.get("Worker", {}).get("replicas") == workers


@given(resources)
@settings(deadline=None, max_examples=25)
def test_resources_are_those_of_the_plan(sizes: Resources):
    """Devices are whole numbers and never overcommitted; CPU has no limit; nothing is zero."""
    found = container(render(resources=sizes))["resources"]
    assert mib(found["limits"]["memory"]) == sizes.memory_mib
    assert found["limits"]["nvidia.com/gpu"] == sizes.gpus
    assert found["limits"].get("vpc.amazonaws.com/efa", 0) == sizes.efa
    assert mib(found["limits"].get("hugepages-2Mi", "0Mi")) == sizes.hugepages_mib
    assert found["requests"] == {**found["limits"], "cpu": f"{sizes.cpu_millis}m"}
    assert all(value not in {0, "0Mi"} for value in found["limits"].values())
    assert "cpu" not in found["limits"]


def test_locking_memory_adds_one_capability():
    """The one right that `ipc_lock` names, which `restricted` does not allow."""
    found = container(render(ipc_lock=True))["securityContext"]["capabilities"]
    assert found == {"drop": ["ALL"], "add": ["IPC_LOCK"]}


def test_the_host_network_brings_its_own_names_and_port(job):
    """There the node's resolver does not know the master, and a port is taken on the node."""
    spec = template(render(host_network=True))["spec"]
    assert spec["hostNetwork"] is True
    assert spec["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert [port["name"] for port in spec["containers"][0]["ports"]] == ["pytorchjob-port"]
    assert {"hostNetwork", "dnsPolicy"} & template(job)["spec"].keys() == set()
    assert "ports" not in container(job)


@pytest.mark.parametrize(
    ("stacks", "preview"),
    [("null", True), (json.dumps(TAGGED), True), (json.dumps(DEPLOYED), False)],
    ids=["no deployment", "tag only", "digest"],
)
def test_a_job_is_a_preview_until_its_image_has_a_digest(stacks, preview):
    """`meks` refuses to submit an image that could change or does not exist."""
    plan = training_job(stacks)
    job = only(jobs(plan), "PyTorchJob")
    marks = {"megatron-eks/preview": "true"} if preview else {}
    assert job["metadata"]["annotations"] == {"megatron-eks/cluster": "techpulse", **marks}
    assert container(job)["image"] == plan.image.uri


@pytest.mark.parametrize(("restarts", "limit"), [(0, 1), (3, 7)])
def test_backoff_limit_allows_the_gang_restarts(restarts, limit):
    """Two pods restart with each gang restart; the operator fails the job when the sum arrives."""
    assert render(restarts=restarts)["spec"]["runPolicy"]["backoffLimit"] == limit
