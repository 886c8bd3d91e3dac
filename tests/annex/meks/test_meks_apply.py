"""`meks apply` on a real API server: order, diff, pruning, and what it refuses."""

import copy
import shutil

import pytest
import yaml

from megatron_eks.kubernetes.client import Object
from megatron_eks.ops.cluster import apply
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.opening import Opened
from tests.consoles import console, said, written

pytestmark = pytest.mark.control_plane

_CONFIG_MAP: Object = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "extra", "namespace": "megatron-workshop"},
    "data": {"key": "one"},
}


@pytest.fixture(scope="module")
def access(client):
    """Reach the shared cluster, in which the operator is a process."""
    return Access(client, is_local=True)


@pytest.fixture
def platform(emitted, tmp_path):
    """Copy the platform's manifests."""
    shutil.copytree(emitted / "platform", tmp_path / "platform")
    return tmp_path / "platform"


@pytest.fixture
def run(access, loaded, platform):
    """Return a function that applies, and returns exit code, data and progress."""

    def call(answer: str | None = None, *, paths=(), **changes):
        told = console(answer and f"{answer}\n", yes=answer is None)
        wish = {"platform": platform, "previews": True, "wait_seconds": 60, **changes}
        code = apply.run(paths, Opened(access, loaded, told), **wish)
        return code, written(told), said(told)

    return call


def add(platform, *objects):
    """Put objects into the platform."""
    (platform / "90-extra.k8s.yaml").write_text(yaml.safe_dump_all(objects))


def test_a_second_run_finds_nothing_to_do(run):
    """Whatever the first one found."""
    code, _, err = run()
    assert (code, err.endswith("the platform is ready\n")) == (0, True)
    code, out, err = run()
    assert (code, out) == (0, "")
    assert err.startswith("no changes, ")


def test_a_change_is_shown_line_by_line_and_made(run, platform, client):
    """The server says what it would make of it; data of others stay."""
    add(platform, _CONFIG_MAP)
    assert "create ConfigMap megatron-workshop/extra\n" in run()[1]
    add(platform, {**_CONFIG_MAP, "data": {"key": "two"}})
    _, out, err = run()
    assert out == (
        "change ConfigMap megatron-workshop/extra\n"
        "    @@ -1,5 +1,5 @@\n"
        "     apiVersion: v1\n"
        "     data:\n"
        "    -  key: one\n"
        "    +  key: two\n"
        "     kind: ConfigMap\n"
        "     metadata:\n"
    )
    assert "1 to change" in err
    assert client.get("v1", "ConfigMap", "extra", "megatron-workshop")["data"] == {"key": "two"}


def test_what_is_no_longer_emitted_is_removed(run, platform, client):
    """Of what this cluster file's runs have applied, and of nothing else."""
    add(platform, _CONFIG_MAP)
    run()
    (platform / "90-extra.k8s.yaml").unlink()
    _, out, err = run()
    assert out == "remove ConfigMap megatron-workshop/extra\n"
    assert "removed ConfigMap megatron-workshop/extra\n" in err
    assert client.find("v1", "ConfigMap", "extra", "megatron-workshop") is None


def test_what_others_depend_on_is_never_removed(run, platform, client):
    """A namespace takes its jobs along, and a claim the way to the data."""
    add(platform, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "extra"}})
    run()
    (platform / "90-extra.k8s.yaml").unlink()
    _, out, err = run()
    assert out == ""
    assert "note: Namespace extra is no longer emitted and stays" in err
    assert client.find("v1", "Namespace", "extra") is not None
    client.delete("v1", "Namespace", "extra")


def test_a_policy_stays_while_jobs_of_an_older_release_may_need_it(run, platform, client):
    """They brought no policy of their own, and have no cluster's name."""
    place = {"name": "extra", "namespace": "megatron-workshop"}
    spec = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]}
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": spec}
    add(platform, {**policy, "metadata": place})
    run()
    (platform / "90-extra.k8s.yaml").unlink()
    pod = {"containers": [{"name": "one", "image": "one"}], "restartPolicy": "Never"}
    job = {"suspend": True, "template": {"spec": pod}}
    older = {"apiVersion": "batch/v1", "kind": "Job", "metadata": place, "spec": job}
    client.apply(older)
    assert (
        "note: NetworkPolicy megatron-workshop/extra is no longer emitted and stays, beca"
        in run()[2]
    )
    client.delete("batch/v1", "Job", "extra", "megatron-workshop")
    assert run()[1] == "remove NetworkPolicy megatron-workshop/extra\n"


def test_only_a_diff_changes_nothing(run, platform, client):
    """`--diff` ends where the question would be."""
    add(platform, _CONFIG_MAP)
    code, out, _ = run(only_diff=True)
    assert (code, out) == (0, "create ConfigMap megatron-workshop/extra\n")
    assert client.find("v1", "ConfigMap", "extra", "megatron-workshop") is None


def test_no_is_an_answer(run, platform, client):
    """The exit code tells scripts that nothing was done."""
    add(platform, _CONFIG_MAP)
    code, _, err = run(answer="n")
    assert (code, err.splitlines()[-1]) == (1, "nothing was changed") or "[y/N]" in err
    assert client.find("v1", "ConfigMap", "extra", "megatron-workshop") is None


def test_placeholders_are_refused(run, access, loaded, platform):
    """The remedy is the command that gets what is missing."""
    with pytest.raises(Failure, match=r"MEKS-0725 placeholders .*meks deploy.*make synth"):
        run(previews=False)
    remote = Access(access.client, is_local=False)
    with pytest.raises(Failure, match="MEKS-0725"):
        apply.run((), Opened(remote, loaded, console()), platform=platform, previews=True)


def test_another_cluster_files_namespace_is_refused(run, platform, client):
    """Two files for one cluster would prune each other's objects."""
    labels = {"megatron-eks/cluster": "other"}
    theirs = {"name": "theirs", "labels": labels}
    client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": theirs}, manager="other")
    add(platform, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "theirs"}})
    with pytest.raises(Failure, match="MEKS-0724 Namespace theirs belongs to cluster 'other'"):
        run()
    client.delete("v1", "Namespace", "theirs")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("other", "MEKS-0724 the manifests are of cluster 'other', .* says 'techpulse'"),
        (None, "MEKS-0726 the manifests carry no cluster's name: an older release wrote them"),
    ],
)
def test_what_was_rendered_for_another_cluster_is_refused(run, platform, client, name, found):
    """Before the server is asked; an older release's files may be of any cluster."""
    line = f"    megatron-eks/cluster: {name}\n" if name else "    team: nlp\n"
    for file in platform.iterdir():
        text = file.read_text()
        assert "    megatron-eks/cluster: techpulse\n" in text
        file.write_text(text.replace("    megatron-eks/cluster: techpulse\n", line))
    add(platform, _CONFIG_MAP)
    with pytest.raises(Failure, match=rf"{found} - write .*: make synth CLUSTER_CONFIG="):
        run()
    assert client.find("v1", "ConfigMap", "extra", "megatron-workshop") is None


def test_what_another_cluster_owns_is_left_alone(run, platform, client):
    """By its annotation, as everything that is rendered has it."""
    theirs = copy.deepcopy(_CONFIG_MAP)
    theirs["metadata"]["annotations"] = {"megatron-eks/cluster": "other"}
    client.apply(theirs, manager="other")
    add(platform, {**_CONFIG_MAP, "data": {"key": "two"}})
    with pytest.raises(Failure, match="MEKS-0724 ConfigMap megatron-workshop/extra belongs to"):
        run()
    assert client.get("v1", "ConfigMap", "extra", "megatron-workshop")["data"] == {"key": "one"}
    client.delete("v1", "ConfigMap", "extra", "megatron-workshop")


def test_what_carries_no_name_is_adopted_once_after_asking(run, platform, client):
    """An older release made it, or kubectl."""
    run()
    client.apply(_CONFIG_MAP, manager="other")
    add(platform, _CONFIG_MAP)
    note = "1 of these objects carry no cluster's name"
    code, out, err = run(answer="n")
    assert (code, out) == (1, "adopt ConfigMap megatron-workshop/extra\n")
    assert note in err
    code, _, err = run()
    assert (code, note in err) == (0, True)
    adopted = client.get("v1", "ConfigMap", "extra", "megatron-workshop")["metadata"]
    assert adopted["annotations"]["megatron-eks/cluster"] == "techpulse"
    assert run()[1:] == ("", run()[2])
    (platform / "90-extra.k8s.yaml").unlink()
    run()


def test_what_does_not_start_is_named_with_its_reason(run, platform):
    """After the time that was given; going on is the same command."""
    labels = {"app": "stuck"}
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1000"}}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "stuck", "namespace": "megatron-system"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }
    add(platform, deployment)
    with pytest.raises(
        Failure, match=r"MEKS-0727 .*stuck: 0 of 1 pods available; .*Insufficient cpu"
    ):
        run(wait_seconds=4)
    (platform / "90-extra.k8s.yaml").unlink()
    run()


def test_a_missing_folder_names_the_command_that_writes_it(run, tmp_path):
    """It is what everybody forgets."""
    with pytest.raises(Failure, match="no such file or folder - run: make synth") as raised:
        run(platform=tmp_path / "none")
    assert raised.value.code == 3
