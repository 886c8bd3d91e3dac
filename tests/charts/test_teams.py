"""What the charts make of teams, beside what there is without them."""

import json

import pytest

from megatron_eks.catalog.workloads import WORKLOADS
from megatron_eks.plan.jobs.table import plan_job
from tests.charts import rendered
from tests.stacks.synthesis import cluster_file, plan_of
from tests.stacks.test_job_role import TRAINING, job
from tests.variations import LUSTRE, teams


def plan(edit=teams):
    """Plan a cluster with teams."""
    cluster = cluster_file()
    edit(cluster)
    return plan_of(cluster)


def key(manifest):
    """Return what names an object."""
    metadata = manifest["metadata"]
    return manifest["kind"], metadata.get("namespace"), metadata["name"]


def by_key(manifests):
    """Return objects by what names them."""
    return {key(each): each for each in manifests}


def test_a_cluster_that_gets_teams_keeps_its_objects():
    """Volumes, claims and accounts stay as they are: nothing with data is made anew.

    What changes: labels of the namespace, its quota, the owner of the top directory, and what the
    operator watches.
    """
    before, after = by_key(rendered.platform()), by_key(rendered.platform(plan()))
    changed = {key for key, each in before.items() if after.get(key) != each}
    own = {("ResourceQuota", "megatron-workshop", e) for e in ("training", "all-but-training")}
    (set_up,) = (each for each in changed if each[0] == "Job")
    assert changed == own | {
        ("Namespace", None, "megatron-workshop"),
        ("ConfigMap", "kubeflow", "training-operator"),
        ("ClusterRole", None, "training-operator"),
        ("Deployment", "kubeflow", "training-operator"),
        set_up,
    }
    assert {each for each in changed if each not in after} == own | {set_up}


def test_a_running_job_of_the_first_team_is_the_same_job():
    """With `team` in its file nothing else of it changes, so no pod is made anew."""
    text = TRAINING.replace("pool: p4d", "team: nlp\npool: p4d")
    before = rendered.jobs()
    of_team = plan_job(job(text), plan(), rendered.deployed().images)
    after = rendered.jobs(of_team, plan=plan())
    assert json.dumps(after, sort_keys=True) == json.dumps(before, sort_keys=True)


@pytest.mark.parametrize("existing", [None, "/a/b"])
def test_each_team_mounts_its_own_folder(existing):
    """A volume for its claim alone, so that whoever its pods run as, they see nothing else."""

    def edit(cluster):
        teams(cluster)
        if existing:
            cluster["storage"]["lustre"]["existing"] = {**LUSTRE, "path": existing}

    top = "abcdefgh" + (existing or "")
    outputs = rendered.outputs(json.dumps(rendered.DEPLOYED))
    volumes = [e for e in rendered.platform(plan(edit), outputs) if e["kind"] == "PersistentVolume"]
    mounted = {
        each["spec"]["claimRef"]["namespace"]: each["spec"]["csi"]["volumeAttributes"]["mountname"]
        for each in volumes
    }
    assert mounted == {
        "megatron-workshop": top,
        "megatron-system": "abcdefgh",
        "vision": f"{top}/teams/vision",
    }
    assert len({e["spec"]["csi"]["volumeHandle"] for e in volumes}) == len(volumes)


def test_every_namespace_of_jobs_denies_all_and_has_the_same_ways_out():
    """One chart, rendered for each."""
    policies = [e for e in rendered.platform(plan()) if e["kind"] == "NetworkPolicy"]
    specs = {
        space: {e["metadata"]["name"]: e["spec"] for e in policies if key(e)[1] == space}
        for space in ("megatron-workshop", "vision")
    }
    assert specs["vision"] == specs["megatron-workshop"]
    assert specs["vision"]["default-deny"] == {
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
    }


def test_the_controllers_may_change_things_where_jobs_are_alone():
    """The operator looks everywhere, because it watches one namespace or all."""
    roles = [e for e in rendered.platform(plan()) if e["kind"] in {"Role", "ClusterRole"}]
    own = [each for each in roles if each["metadata"]["name"] == "training-operator"]
    changing = {
        key(each)[1]
        for each in own
        for rule in each["rules"]
        if {"create", "delete"} & {*rule["verbs"]} and "pods" in rule["resources"]
    }
    assert changing == {"megatron-workshop", "vision"}


def test_people_may_do_all_with_every_kind_of_job():
    """A kind that is added later needs no word here."""
    (role,) = (
        e for e in rendered.platform(plan()) if key(e) == ("Role", "vision", "megatron-eks-team")
    )
    given = {name for rule in role["rules"] for name in rule["resources"]}
    assert given >= {each.plural for each in WORKLOADS.values()}
