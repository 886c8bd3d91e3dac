"""`meks` talks to the cluster of the cluster file, and to no other."""

from datetime import date

import pytest
import yaml

from megatron_eks.kubernetes.client import ApiError
from megatron_eks.kubernetes.connection import UnreachableError, refusal
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.kube.access import explained, open_access
from megatron_eks.project import ROOT, load_project

_ARN = "arn:aws:eks:us-east-2:111122223333:cluster"


@pytest.fixture(scope="module")
def plan():
    """Plan the default cluster."""
    return load_project(ROOT / "cluster.yaml", date(2026, 11, 21)).cluster


def kubeconfig(folder, *clusters, server="https://x.us-east-2.eks.amazonaws.com"):
    """Write a context for each cluster; the first is the current one."""
    config = {
        "clusters": [{"name": name, "cluster": {"server": server}} for name in clusters],
        "users": [{"name": name, "user": {"token": "t"}} for name in clusters],
        "contexts": [
            {"name": name.rpartition("/")[2], "context": {"cluster": name, "user": name}}
            for name in clusters
        ],
        "current-context": clusters[0].rpartition("/")[2],
    }
    (folder / "config").write_text(yaml.safe_dump(config))
    return folder / "config"


def test_the_configured_cluster_is_taken(plan, tmp_path):
    """By the ARN, which the AWS CLI and `meks kubeconfig` write."""
    access = open_access(plan, kubeconfig(tmp_path, f"{_ARN}/techpulse"), None, {}, tmp_path)
    assert not access.is_local


def test_another_cluster_is_refused(plan, tmp_path):
    """A current context is easily forgotten."""
    file = kubeconfig(tmp_path, f"{_ARN}/production")
    with pytest.raises(Failure) as raised:
        open_access(plan, file, None, {}, tmp_path)
    assert str(raised.value) == (
        "MEKS-0723 context production leads to production in us-east-2, and the cluster file says "
        "techpulse in us-east-2 - write one for it: meks kubeconfig"
    )
    assert raised.value.code == 2


def test_another_cluster_is_refused_even_when_it_is_named(plan, tmp_path):
    """--context chooses among ways to the cluster; it does not change the cluster."""
    file = kubeconfig(tmp_path, f"{_ARN}/production")
    with pytest.raises(Failure, match="MEKS-0723"):
        open_access(plan, file, "production", {}, tmp_path)


def test_the_same_name_in_another_region_is_another_cluster(plan, tmp_path):
    """Names of EKS clusters are unique in a region only."""
    file = kubeconfig(tmp_path, "arn:aws:eks:eu-west-1:111122223333:cluster/techpulse")
    with pytest.raises(Failure, match="leads to techpulse in eu-west-1"):
        open_access(plan, file, None, {}, tmp_path)


def test_the_right_context_of_the_file_is_named(plan, tmp_path):
    """The remedy is a flag where the file has what is needed."""
    file = kubeconfig(tmp_path, f"{_ARN}/production", f"{_ARN}/techpulse")
    with pytest.raises(Failure, match="add --context techpulse"):
        open_access(plan, file, None, {}, tmp_path)
    open_access(plan, file, "techpulse", {}, tmp_path)


def test_a_context_that_does_not_say_where_it_leads_must_be_named(plan, tmp_path):
    """A proxy in front of EKS has names of its own."""
    file = kubeconfig(tmp_path, "through-the-proxy")
    with pytest.raises(Failure, match="add --context through-the-proxy"):
        open_access(plan, file, None, {}, tmp_path)
    open_access(plan, file, "through-the-proxy", {}, tmp_path)


def test_the_eks_of_a_local_aws_is_local_and_one_cluster_files(plan, tmp_path):
    """By the account that nobody has; what is reached through a tunnel is not local."""
    arn, server = "arn:aws:eks:us-east-2:000000000000:cluster", "https://127.0.0.1:6443"
    file = kubeconfig(tmp_path, f"{arn}/techpulse", server=server)
    assert open_access(plan, file, None, {}, tmp_path).is_local
    with pytest.raises(Failure, match="MEKS-0723"):
        open_access(plan, kubeconfig(tmp_path, f"{arn}/other", server=server), None, {}, tmp_path)
    file = kubeconfig(tmp_path, f"{_ARN}/techpulse", server=server)
    assert not open_access(plan, file, None, {}, tmp_path).is_local


def test_a_local_cluster_is_for_every_cluster_file(plan, tmp_path):
    """It is there for rehearsals; one elsewhere that only has its name is not."""
    file = kubeconfig(tmp_path, "meks-local", server="https://127.0.0.1:6443")
    assert open_access(plan, file, None, {}, tmp_path).is_local
    file = kubeconfig(tmp_path, "meks-local", server="https://10.0.0.1:6443")
    with pytest.raises(Failure, match="MEKS-0723"):
        open_access(plan, file, None, {}, tmp_path)


def test_without_a_context_the_remedy_writes_one(plan, tmp_path):
    """A machine that has never talked to a cluster."""
    with pytest.raises(Failure, match=r"no current context in .*config - .*meks kubeconfig"):
        open_access(plan, None, None, {}, tmp_path)
    with pytest.raises(Failure, match="no context 'nope' in"):
        open_access(plan, None, "nope", {}, tmp_path)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UnreachableError("https://x: no answer within 30 s"), 5, "MEKS-0720"),
        (ApiError(401, "Unauthorized", "Unauthorized"), 1, "does not accept the credentials"),
        (ApiError(403, "Forbidden", "x is forbidden: User y cannot"), 1, "admin_role_arns"),
        (ApiError(409, "Conflict", "the object has been modified"), 1, "run the command again"),
    ],
)
def test_an_error_says_what_to_do(error, code, said):
    """In one line, with the exit code of its kind."""
    failure = explained(error)
    assert failure.code == code
    assert said in str(failure)


def test_a_kubelet_that_does_not_answer_is_named_in_plain_words():
    """The API server's object is not shown as it came, and the next step is to look at the node."""
    body = (
        b'{"kind":"Status","status":"Failure","message":"Get \\"https://10.0.83.7:10250/'
        b'containerLogs/a/b/c\\": dial tcp 10.0.83.7:10250: connect: connection refused",'
        b'"code":500}'
    )
    assert str(explained(refusal(500, body))) == (
        "MEKS-0721 the node's kubelet does not answer the API server: Get "
        '"https://10.0.83.7:10250/containerLogs/a/b/c": dial tcp 10.0.83.7:10250: connect: '
        "connection refused - see whether its node is there and Ready: meks nodes; then run it "
        "again"
    )
    simulated = str(explained(refusal(500, body.replace(b"10.0.83.7:", b":"))))
    assert simulated.endswith(
        " - it is simulated and runs nothing: meks local down, and up with --nodes 1"
    )


def test_words_that_are_no_object_stay_as_they_are():
    """A proxy in between answers in its own way."""
    for body in (b"bad gateway", b"[1]", b'"no"'):
        assert str(refusal(502, body)) == body.decode()
