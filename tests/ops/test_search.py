"""`meks plan --search`: the table, the file it writes, and what it refuses."""

import json
import shutil

import pytest
import yaml

from megatron_eks.__main__ import main
from megatron_eks.project import ROOT

JOB = "megatron-cpt-techpulse"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Copy the default cluster with one job, which may be changed."""
    shutil.copy("cluster.yaml", tmp_path)
    (tmp_path / "jobs").mkdir()
    shutil.copy(f"jobs/{JOB}.yaml", tmp_path / "jobs")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "jobs" / f"{JOB}.yaml"


@pytest.mark.usefixtures("project")
def test_shows_the_ten_best_and_the_own(capsys):
    """In 80 columns, with the reason for the difference."""
    assert main(["plan", "--search", "--cluster", "cluster.yaml"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[2:13]] == [*map(str, range(1, 11)), "yours"]
    assert "by itself" in lines[13]


def test_finds_a_layout_for_a_job_that_does_not_fit(project, capsys):
    """What the checks refuse is what the search is for."""
    project.write_text(project.read_text().replace("tensor: 4", "tensor: 2"))
    assert main(["plan", "--search", JOB, "--cluster", "cluster.yaml"]) == 0
    assert "Yours does not fit." in capsys.readouterr().out


def test_the_best_is_accepted(project, capsys):
    """What a search finds, written into the job file, is a layout that validates."""
    options = ["plan", "--search", JOB, "--cluster", "cluster.yaml"]
    assert main([*options, "-o", "json"]) == 0
    best = json.loads(capsys.readouterr().out)[JOB][0]
    job = yaml.safe_load(project.read_text())
    job["parallelism"] |= best["parallelism"]
    job["training"] |= {key: best[key] for key in ("micro_batch_size", "recompute")}
    project.write_text(yaml.safe_dump(job))
    assert main(["validate"]) == 0


@pytest.mark.usefixtures("project")
def test_an_unknown_job_is_not_found(capsys):
    """Exit code 3, as for everything that is not there."""
    assert main(["plan", "--search", "other", "--cluster", "cluster.yaml"]) == 3
    assert "other" in capsys.readouterr().err


@pytest.mark.usefixtures("project")
def test_what_if_shows_the_money(capsys):
    """Each decision changed alone; more computed again is less memory, and costs more."""
    assert main(["plan", JOB, "--what-if", "--cluster", "cluster.yaml", "-o", "json"]) == 0
    rows = {row["change"]: row for row in json.loads(capsys.readouterr().out)}
    own, full = rows["as it is"], rows["recompute: full"]
    assert full["memory_share"] < own["memory_share"]
    assert full["usd"] > own["usd"] > 0
    assert {"nodes: 1", "checkpoint.interval: 50"} <= rows.keys()
    assert not [change for change in rows if change.startswith("precision")]  # A100 have one
    assert main(["plan", JOB, "--what-if", "--cluster", "cluster.yaml"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert max(map(len, table)) <= 80
    with pytest.raises(SystemExit, match="2"):
        main(["plan", "--what-if"])
    with pytest.raises(SystemExit, match="2"):
        main(["plan", "--search", JOB, "--what-if"])
    with pytest.raises(SystemExit, match="2"):
        main(["plan", "another", "--search", JOB])


def test_what_if_compares_the_price_of_a_token(capsys):
    """The same steps of FSDP on half the nodes learn from half the tokens."""
    cluster = ROOT / "cluster.yaml"
    assert main(["plan", "fsdp-llama-2-7b", "--what-if", "--cluster", str(cluster)]) == 0
    table = capsys.readouterr().out
    change = float(table.partition("nodes: 1 ")[2].splitlines()[0].split()[-1].rstrip("%"))
    assert abs(change) < 15  # twice the price, if the tokens were the same
    assert "column compares the price of a token" in table
