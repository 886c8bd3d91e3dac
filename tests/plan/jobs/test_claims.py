"""What several job files of one cluster do to each other, and to the time that its nodes have."""

from datetime import date
from pathlib import Path

import pytest
import yaml

from megatron_eks.project import check_files
from tests.variations import teams

ROOT = Path(__file__).parents[3]
TODAY = date(2026, 11, 21)
CLUSTER = (ROOT / "cluster.yaml").read_text()
RUN = "megatron-cpt-techpulse"
CASES = yaml.safe_load(Path(__file__).with_name("claims.yaml").read_text())


def job(file: str, /, **changes: object) -> str:
    """Return a shipped job file with some of its keys changed, blocks key by key."""
    values = yaml.safe_load((ROOT / "jobs" / f"{file}.yaml").read_text())
    values.setdefault("runtime", {})
    if "learning_rate" in values.get("training", {}):
        values["training"] |= {"learning_rate": 0.00001, "min_learning_rate": 0.0}
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(values[key], dict)
        values[key] = values[key] | value if both else value
    return yaml.safe_dump(values)


def findings(folder: Path, *jobs: str, cluster: str = CLUSTER) -> list[str]:
    """Check the files of a project, and leave out the documentation values of the cluster."""
    (folder / "cluster.yaml").write_text(cluster)
    files = [folder / f"job{index}.yaml" for index in range(len(jobs))]
    for file, text in zip(files, jobs, strict=True):
        file.write_text(text)
    found = check_files(folder / "cluster.yaml", files, TODAY).findings
    lines = [str(each).replace(f"{folder}/", "") for each in found]
    return [line for line in lines if "MEKS-0212" not in line]


@pytest.mark.parametrize("case", CASES, ids=[case["about"] for case in CASES])
def test_what_jobs_claim_and_find(tmp_path, case):
    """Exactly these findings, each of which starts so and says the rest somewhere."""
    named = [each if isinstance(each, dict) else {each: {}} for each in case.get("jobs", [])]
    jobs = [job(file, **changes) for each in named for file, changes in each.items()]
    cluster = CLUSTER
    for old, new in case.get("cluster", {}).items():
        assert old in cluster
        cluster = cluster.replace(old, new, 1) if old else cluster + new
    found = findings(tmp_path, *jobs, cluster=cluster)
    for expected, line in zip(case.get("expect", []), found, strict=True):
        start, *rest = expected.split(" ... ")
        assert line.startswith(start)
        assert all(words in line for words in rest)


@pytest.mark.parametrize(
    ("size", "nodes", "count"), [("4xlarge", 2, 1), ("4xlarge", 1, 0), ("8xlarge", 2, 0)]
)
def test_nodes_that_meet_over_tcp(tmp_path, size, nodes, count):
    """EFA begins at g5.8xlarge, and one node needs none."""
    cluster = CLUSTER.replace("p4d.24xlarge", f"g5.{size}")
    run = job("ddp-llama-3-2-1b", nodes=nodes)
    said = [line for line in findings(tmp_path, run, cluster=cluster) if "MEKS-0398" in line]
    assert len(said) == count


def test_an_export_of_what_megatron_lm_has_saved(tmp_path):
    """Its checkpoints lack the configuration that Megatron-Bridge's have."""
    export = job("export-techpulse", source="/shared/checkpoints/techpulse-cpt")
    (line,) = findings(tmp_path, export, job(RUN))
    assert line.startswith("error MEKS-0334 job0.yaml")
    bridge = job(
        "bridge-cpt-techpulse", checkpoint={"directory": "/shared/checkpoints/techpulse-cpt"}
    )
    found = findings(tmp_path, export, job(RUN), bridge)
    assert any(line.startswith("warning MEKS-0334 job0.yaml") for line in found)


@pytest.mark.parametrize(
    ("file", "changes", "place"),
    [
        ("fetch-tokenizer", {}, "tokenizer"),
        ("ddp-llama-3-2-1b", {"data": {"dataset": "HuggingFaceFW/fineweb-edu"}}, "data.dataset"),
        (RUN, {"image": f"docker.io/mine/megatron@sha256:{'0' * 64}"}, "image"),
    ],
)
def test_what_no_node_reaches(tmp_path, file, changes, place):
    """Without NAT and proxy there are AWS's endpoints alone."""
    network = (
        "network: {nat_gateways: 0, interface_endpoints: [ec2, ecr.api, ecr.dkr, eks-auth]}\n"
        "images: {mirror: 111122223333.dkr.ecr.us-east-2.amazonaws.com/mirror}\n"
    )
    found = findings(tmp_path, job(file, **changes), cluster=CLUSTER + network)
    (line,) = (each for each in found if "MEKS-0399" not in each)
    assert line.startswith("error MEKS-0244 job0.yaml")
    assert f" {place}: " in line


def test_checkpoints_that_fill_the_file_system_together(tmp_path):
    """Each of the jobs has room alone."""
    jobs = [
        job(RUN, name=f"run-{index}", checkpoint={"directory": f"/shared/run-{index}"})
        for index in range(4)
    ]
    (line,) = findings(tmp_path, *jobs)
    assert line.startswith("warning MEKS-0379 job3.yaml")
    assert "of 4 jobs they take 1" in line


def test_on_a_file_system_that_exists_jobs_write_below_what_is_made_for_them(tmp_path):
    """In a folder of their own they may write anywhere, and so on a new file system."""
    lustre = {"id": "fs-0123456789abcdef0", "dns_name": "fs.example.com", "mount_name": "abcdefgh"}
    cluster = yaml.safe_load(CLUSTER)
    beside = [job(RUN, checkpoint={"directory": "/shared/run"}), job("fetch-tokenizer")]
    told = {}
    for existing in (None, lustre, {**lustre, "path": "/teams/nlp"}):
        cluster["storage"]["lustre"]["existing"] = existing
        found = findings(tmp_path, *beside, cluster=yaml.safe_dump(cluster))
        told[str(existing)] = [line for line in found if "MEKS-0856" in line]
    (line,) = told.pop(str(lustre))
    assert list(told.values()) == [[], []]
    assert line.startswith("warning MEKS-0856 job0.yaml:")
    assert (
        "checkpoint.directory: the file system exists, and nothing here makes /shared/run the "
        "pods' - use a path below /shared/data, /shared/tokenizer, "
    ) in line


@pytest.mark.parametrize("team", ["nlp", "vision"])
def test_who_sees_the_folders_of_other_teams_may_not_save_there(tmp_path, team):
    """They are root's and others'; of a team with a folder of its own it is a part of that."""
    cluster = yaml.safe_load(CLUSTER)
    teams(cluster)
    place = "/shared/teams/vision/run"
    one = job(RUN, team=team, nodes=1, checkpoint={"directory": place})
    found = findings(tmp_path, one, cluster=yaml.safe_dump(cluster))
    said = [line for line in found if f"{place} is below /shared/teams/" in line]
    assert [line.split()[1] for line in said] == ["MEKS-0637"] * (team == "nlp")


@pytest.mark.parametrize(("interval", "warned"), [(500, False), (200_000, True)])
def test_spot_nodes_and_how_often_is_saved(tmp_path, interval, warned):
    """Two minutes' notice suffice for a small model that saves every few minutes."""
    cluster = CLUSTER.replace("max_nodes: 2", "max_nodes: 2\n    capacity: {type: spot}")
    changes = {"training": {"max_steps": 1_000_000}, "checkpoint": {"interval": interval}}
    found = findings(tmp_path, job("ddp-llama-3-2-1b", **changes), cluster=cluster)
    assert any("MEKS-0231" in line for line in found) == warned


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("llama-3.2-1b", ["trains a model with num_layers 16 there - name weights of this model"]),
        ("llama-3.1-8b", []),
    ],
)
def test_base_weights_that_another_job_trains(tmp_path, model, said):
    """A run may go on from the checkpoints of another one of the same shape."""
    base = "/shared/checkpoints/first"
    first = job(RUN, name="first", model=model, checkpoint={"directory": base, "pretrained": None})
    second = job(RUN, checkpoint={"pretrained": base})
    found = [line for line in findings(tmp_path, first, second) if "MEKS-0334" in line]
    assert [words in line for words, line in zip(said, found, strict=True)] == [True] * len(said)
