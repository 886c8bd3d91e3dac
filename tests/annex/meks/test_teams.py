"""Two teams on a real API server: what each may do, as whom its pods run, and what commands see."""

import contextlib
import copy
import io
import itertools
import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import pytest

from megatron_eks.demo.nodes import gpu_node
from megatron_eks.kubernetes import manifests
from megatron_eks.kubernetes.client import ApiError, wait_for
from megatron_eks.localcloud.kubernetes.operator import Operator, operator_file
from megatron_eks.ops.console import Console, SystemClock
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.jobs import cancel, fit, holdings, overview, status
from megatron_eks.ops.kube import jobs, teams
from megatron_eks.project import load_project
from megatron_eks.synthesis import FOLDERS, synthesise_manifests
from tests import command, examples, schemas
from tests.annex.acting import acting_as
from tests.annex.meks.rights import ATTEMPTS, VERBS, allowed, is_refused, pod_of

pytestmark = pytest.mark.control_plane

_OTHERS = ("vision", "megatron-workshop", "megatron-system", "kube-system")
_READ = frozenset(("get", "list", "watch"))
_OF_RIGHTS = ("Namespace", "CustomResourceDefinition", "Role", "RoleBinding", "ClusterRole")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Write the manifests of the example."""
    file = examples.copy("two-teams", tmp_path_factory.mktemp("two-teams"))
    synthesise_manifests(file, file.with_name("dist"))
    return file


@pytest.fixture(scope="module")
def project(files):
    """Load the example."""
    return load_project(files, datetime.now(tz=UTC).date())


@pytest.fixture(scope="module")
def admin(files, start_plane, tmp_path_factory):
    """Start a control plane with the platform of two teams, and return its administrator."""
    plane = start_plane(tmp_path_factory.mktemp("teams"))
    platform = files.with_name("dist") / "platform"
    operator = Operator(plane, manifests.read_file(operator_file(platform)))
    operator.install()
    for manifest in manifests.read(platform):
        operator.client.apply(manifest)
    # Kinds and rights of all platforms: queues and TrainJobs, whose controllers no test here needs.
    wide = examples.copy("two-teams", tmp_path_factory.mktemp("wide"))
    wide.write_text(wide.read_text() + "platform: {kueue: true, workload: trainjob}\n")
    synthesise_manifests(wide, wide.with_name("dist"))
    for manifest in manifests.read(wide.with_name("dist") / "platform"):
        if manifest["kind"] in _OF_RIGHTS:
            operator.client.apply(manifest)
    yield operator.client
    operator.stop()


@pytest.fixture(scope="module")
def person(admin):
    """Return somebody of team nlp, as EKS makes a role a group."""
    with contextlib.closing(acting_as(admin, "somebody", "megatron-eks:nlp")) as client:
        yield client


def console(*, yes=False):
    """Return a console that nobody sits at."""
    stdin = io.TextIOWrapper(io.BytesIO())
    return Console(stdin, io.StringIO(), io.StringIO(), SystemClock(), yes=yes)


def job_of(files, name):
    """Return the manifests of a job."""
    return manifests.read_file(files.with_name("dist") / "jobs" / f"{name}.k8s.yaml")


@pytest.fixture(scope="module")
def running(admin, files):
    """Apply a job of each team, and wait for the operator to make its pods."""
    for name in ("llama-3-1-8b", "fsdp-llama-3-2-1b"):
        for manifest in job_of(files, name):
            admin.apply(manifest)
    for namespace, pods in (("nlp", 2), ("vision", 1)):
        wait_for(f"pods of {namespace}", partial(_has, admin, namespace, pods))


def _has(client, namespace, pods):
    return len(_ranks(client, namespace)) == pods


def _ranks(client, namespace):
    return client.list("v1", "Pod", namespace, labels="app=megatron-training")


def test_every_object_is_accepted_in_the_namespace_that_enforces_its_level(admin, files):
    """Those of each team, its jobs among them."""
    everything = [e for name in FOLDERS for e in manifests.read(files.with_name("dist") / name)]
    for manifest in everything:
        admin.apply(manifest, dry_run=True)
    spaces = {each["metadata"].get("namespace") for each in everything}
    assert {"nlp", "vision", "megatron-workshop"} <= spaces


@pytest.mark.usefixtures("running")
def test_one_operator_runs_the_jobs_of_both_as_users_of_their_own(admin, project):
    """The container that waits for the master has no user of its own."""
    users = {each.namespace: each.uid for each in project.cluster.teams}
    assert len({*users.values()}) == len(users)
    for namespace, user in users.items():
        for pod in _ranks(admin, namespace):
            assert pod["spec"]["securityContext"]["runAsUser"] == user
            assert pod["spec"]["securityContext"]["runAsGroup"] == user
            every = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]
            assert {e.get("securityContext", {}).get("runAsUser") for e in every} <= {None, user}


@pytest.mark.parametrize("namespace", ["vision", "megatron-workshop", "megatron-system"])
def test_a_team_can_do_nothing_elsewhere(admin, namespace):
    """Of every kind and with every verb; what everybody may ask of themselves is no more."""
    nobodys = allowed(admin, "system:authenticated", namespace, namespaced=True)
    assert allowed(admin, "megatron-eks:nlp", namespace, namespaced=True) == nobodys


def test_of_the_whole_cluster_a_team_sees_nodes_priorities_and_shares(admin):
    """Nothing that another team has: a list of all namespaces is none of theirs."""
    nobodys = allowed(admin, "system:authenticated", "", namespaced=False)
    found = allowed(admin, "megatron-eks:nlp", "", namespaced=False) - nobodys
    seen = ("nodes", "priorityclasses", "clusterqueues", "cohorts")
    assert found == set(itertools.product(_READ, seen))


def test_at_home_it_does_all_with_jobs_and_nothing_about_its_limits(admin):
    """Rights, quotas and the namespace are the administrators'."""
    found = allowed(admin, "megatron-eks:nlp", "nlp", namespaced=False)
    jobs_kinds = ["pytorchjobs", "jobsets", "trainjobs", "trainingruntimes", "jobs"]
    jobs_kinds += ["pods", "secrets", "configmaps", "services"]
    assert found >= set(itertools.product(VERBS, jobs_kinds))
    assert found >= {("get", "pods/log"), ("create", "pods/exec"), ("list", "events")}
    kept = ["resourcequotas", "limitranges", "roles", "rolebindings", "namespaces", "nodes"]
    kept += ["localqueues", "workloads", "workloads/status", "clusterqueues", "cohorts"]
    assert found >= set(itertools.product(_READ, ("localqueues", "workloads")))
    assert not found & set(itertools.product({*VERBS} - _READ, kept))
    hidden = {"persistentvolumes", "clusterroles", "nodes/proxy", "workloadpriorityclasses"}
    assert not {name for _, name in found} & hidden


@pytest.mark.usefixtures("running")
def test_attempts_on_another_teams_job_are_refused(person, files):
    """As a real request each, and not as a question about it."""
    theirs = next(e for e in job_of(files, "fsdp-llama-3-2-1b") if e["kind"] == "PyTorchJob")
    name = theirs["metadata"]["name"]
    again = copy.deepcopy(theirs)
    again["metadata"]["name"] = "started-by-nlp"
    attempts: tuple[Callable[[], object], ...] = (
        lambda: person.get(theirs["apiVersion"], "PyTorchJob", name, "vision"),
        lambda: person.list("v1", "Pod", "vision"),
        lambda: person.list("v1", "Pod"),
        lambda: person.list("v1", "Secret", "vision"),
        lambda: person.create(again),
        lambda: person.apply(theirs),
        lambda: person.delete(theirs["apiVersion"], "PyTorchJob", name, "vision"),
        *(partial(person.request, *each) for each in ATTEMPTS),
    )
    for attempt in attempts:
        with pytest.raises(ApiError) as caught:
            attempt()
        assert caught.value.status == 403


def test_pods_of_a_team_run_as_its_user_and_no_other(admin, person, project):
    """With another's number a pod would read what is the other's on a volume that it sees."""
    own, other = (project.cluster.teams[index].uid for index in (0, 1))
    wait_for("the policy", lambda: is_refused(admin, pod_of(other)))
    person.create(pod_of(own), dry_run=True)
    person.create(pod_of(own, fsGroup=own, supplementalGroups=[own]), dry_run=True)
    inside = pod_of(own)
    inside["spec"]["containers"][0]["securityContext"]["runAsUser"] = other
    before = pod_of(own)
    before["spec"]["initContainers"] = copy.deepcopy(inside["spec"]["containers"])
    before["spec"]["initContainers"][0]["name"] = "before"
    unsaid = pod_of(own)
    del unsaid["spec"]["securityContext"]["runAsGroup"]
    for wrong in (
        pod_of(other),
        pod_of(own, runAsGroup=other),
        pod_of(own, fsGroup=other),
        pod_of(own, supplementalGroups=[own, other]),
        inside,
        before,
        unsaid,
    ):
        assert is_refused(person, wrong), wrong["spec"]
    elsewhere = pod_of(other)
    elsewhere["metadata"]["namespace"] = "megatron-workshop"
    admin.create(elsewhere, dry_run=True)


def test_a_quota_ends_at_the_teams_share(admin, project):
    """Whatever class its pods have."""
    for team in project.cluster.teams:
        hard = admin.get("v1", "ResourceQuota", "share", team.namespace)["spec"]
        assert hard["hard"]["requests.nvidia.com/gpu"] == str(team.gpus)
        assert "scopeSelector" not in hard


@pytest.mark.usefixtures("running")
def test_lists_show_all_teams_that_one_may_see(admin, person, project):
    """Administrators all; somebody of a team is told in one line what is not shown."""
    mine = {"llama-3-1-8b"}
    for client, seen, told in (
        (admin, {"llama-3-1-8b", "fsdp-llama-3-2-1b"}, ""),
        (person, mine, "may not see them: megatron-workshop, vision"),
    ):
        here = console()
        plan = teams.narrowed(client, project, here, None, None).cluster
        found = overview.read(client, plan)
        assert {each.name for each in found.jobs} == seen
        assert {each.team for each in found.jobs} == ({"nlp", "vision"} if seen - mine else {"nlp"})
        schemas.checked("status", overview.as_json(found))
        assert told in here.stderr.getvalue()
        assert bool(told) == ("note:" in here.stderr.getvalue())


@pytest.mark.usefixtures("running")
def test_people_of_a_team_look_at_their_jobs_and_ahead_of_others(person, project, files):
    """Without the rights of an administrator, whose part of it is left out."""
    mine = teams.narrowed(person, project, console(), None, "llama-3-1-8b")
    assert {each.name for each in holdings.read(person, mine.cluster, person.now()).jobs} == {
        "llama-3-1-8b"
    }
    assert status.read(person, mine, "llama-3-1-8b").look.job.namespace == "nlp"
    workload = next(e for e in job_of(files, "llama-3-1-8b") if e["kind"] == "PyTorchJob")
    told = "\n".join(str(each) for each in fit.obstacles(person, mine.cluster, workload))
    assert "quota share allows 16 nvidia.com/gpu, 16 are in use" in told
    assert "pool p4d has 0 of the 2 nodes that this takes" in told


@pytest.mark.usefixtures("running")
def test_cost_is_that_of_the_team_and_names_no_node_idle_that_others_may_use(
    admin, person, project, files
):
    """As a command of an administrator for one team, and as its people see it."""
    node = gpu_node(project.cluster.pools[0], 0)
    node["spec"]["unschedulable"] = True
    admin.create(node)
    mine = teams.of_team(project, "nlp").cluster
    idle = {
        who: [each.busy for each in holdings.read(client, mine, client.now()).nodes]
        for who, client in (("admin", admin), ("person", person))
    }
    assert idle == {"admin": [False], "person": [True]}
    config = next(files.parents[1].glob("teams*/admin.kubeconfig"))
    asked = ("cost", "--cluster", files, "--kubeconfig", config)
    for words, names in (
        (("--team", "nlp"), {"llama-3-1-8b"}),
        (("fsdp-llama-3-2-1b",), {"fsdp-llama-3-2-1b"}),
    ):
        shown = json.loads(command.meks(*asked, *words, "-o", "json").stdout)
        assert {each["name"] for each in shown["jobs"]} == names
    assert "no team 'nlq'" in command.meks(*asked, "--team", "nlq").stderr
    admin.delete("v1", "Node", node["metadata"]["name"])


@pytest.mark.usefixtures("running")
def test_commands_find_a_job_in_the_namespace_of_its_team(admin, person, project, files):
    """By the job file's `team`, or by asking where one may look; another's job is refused."""
    narrowed = teams.narrowed(admin, project, console(), None, "fsdp-llama-3-2-1b")
    assert narrowed.cluster.platform.namespaces == ("vision",)
    without_files = project.__class__(**{**vars(project), "jobs": ()})
    for client, space in ((admin, "vision"), (person, "megatron-workshop")):
        found = teams.narrowed(client, without_files, console(), None, "fsdp-llama-3-2-1b")
        assert found.cluster.platform.namespace == space
    theirs = teams.narrowed(person, project, console(), None, "fsdp-llama-3-2-1b").cluster
    with pytest.raises(ApiError):
        cancel.run(person, theirs, "fsdp-llama-3-2-1b", 1, console(yes=True))
    with pytest.raises(Failure, match="add --team nlp or --team vision"):
        teams.checked(project, None, one=True)
    with pytest.raises(Failure, match="no team 'nlq'"):
        teams.checked(project, "nlq")
    mine = teams.narrowed(person, project, console(), None, "llama-3-1-8b").cluster
    assert cancel.run(person, mine, "llama-3-1-8b", 60, console(yes=True)) == 0
    assert jobs.find(admin, "nlp", "llama-3-1-8b") is None
    for manifest in job_of(files, "llama-3-1-8b"):
        person.apply(manifest)
    wait_for("pods", partial(_has, admin, "nlp", 2))
