"""A file that an older release wrote stops what makes something, and nothing that looks or ends."""

import tarfile
from datetime import date

import pytest

from megatron_eks.__main__ import main
from megatron_eks.config.errors import ConfigError
from megatron_eks.project import ROOT, load_project
from tests import command

CLUSTER = (
    (ROOT / "cluster.yaml")
    .read_text()
    .replace('"1.36"', '"1.35"')
    .replace("111122223333", "123456789012")
    .replace("203.0.113.0/24", "8.8.8.0/24")
)
JOB = (ROOT / "jobs" / "megatron-cpt-techpulse.yaml").read_text()

LOOKS_OR_ENDS = """
cancel megatron-cpt-techpulse --yes
ckpt ls megatron-cpt-techpulse
ckpt prune megatron-cpt-techpulse --keep-last 3
ckpt pull s3://bucket/x --local pulled
ckpt push megatron-cpt-techpulse s3://bucket/x
ckpt verify megatron-cpt-techpulse
cleanup --yes
cost
data fetch s3://bucket/data/ /shared/data
data pull /shared/logs/x
data push cluster.yaml s3://bucket/data
data verify /shared/data/x_text_document
fix MEKS-0845 --yes
kubeconfig
logs megatron-cpt-techpulse --explain
nodes
outputs
preflight cluster
queue
profile megatron-cpt-techpulse
report
report megatron-cpt-techpulse
scale p4d 0
secret rm x --yes
secret set x
shell megatron-cpt-techpulse
status
tensorboard megatron-cpt-techpulse
verify --job megatron-cpt-techpulse
"""
MAKES = """
apply
build
deploy --yes
dev megatron-cpt-techpulse
plan
preflight
submit megatron-cpt-techpulse
synth
validate
verify
"""
_ELSEWHERE = {"cdk", "check", "completion", "explain", "init", "local", "predict", "token"} | {
    "support-bundle"
}
"""They read no cluster file, pass it to `app.py`, or keep what they find for others."""


@pytest.fixture
def outdated(tmp_path, monkeypatch):
    """Stand where a file was right with its release, and nobody may ask AWS or an API server."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "jobs" / "job.yaml").write_text(JOB)
    (tmp_path / "jobs" / "begun.yaml").write_text("kind: fsdp\nname: begun\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path


@pytest.mark.parametrize("words", LOOKS_OR_ENDS.split("\n")[1:-1])
@pytest.mark.usefixtures("outdated")
def test_what_looks_or_ends_goes_on(words, capsys):
    """What is wrong is a warning beside it: it ends by what it could not reach."""
    main(words.split())
    told = capsys.readouterr()
    assert "warning MEKS-0218 cluster.yaml:" in told.err
    assert "warning MEKS-0102 jobs/begun.yaml:1 schema_version: " in told.err
    assert "error MEKS-0218" not in told.out + told.err


@pytest.mark.parametrize("words", MAKES.split("\n")[1:-1])
@pytest.mark.usefixtures("outdated")
def test_what_makes_something_is_refused(words, capsys):
    """With the errors of all files at once."""
    assert main(words.split()) == 2
    told = capsys.readouterr()
    assert "error MEKS-0218 cluster.yaml:" in told.out + told.err


def test_every_command_has_its_place():
    """A new one makes something, or looks, or ends something."""
    lines = [*LOOKS_OR_ENDS.split("\n")[1:-1], *MAKES.split("\n")[1:-1]]
    placed = {line.split()[0] for line in lines} | _ELSEWHERE
    assert {words[0] for words in command.commands() if words} == placed


def test_a_bundle_has_what_is_wrong(outdated):
    """It is what others need to help."""
    assert main(["support-bundle", "--output", "b.tar.gz"]) == 0
    with tarfile.open(outdated / "b.tar.gz") as bundle:
        told = bundle.extractfile("support/findings.txt")
        assert told is not None
        assert told.read().startswith(b"error MEKS-0218 cluster.yaml:")
        assert "support/plan.json" in bundle.getnames()


def test_what_cannot_be_planned_is_refused(outdated):
    """An instance type that no catalogue has says too little of the cluster that there is."""
    file = outdated / "cluster.yaml"
    file.write_text(CLUSTER.replace("p4d.24xlarge", "p4x.24xlarge"))
    with pytest.raises(ConfigError, match="MEKS-0201"):
        load_project(file, date(2026, 11, 30), makes=False)
