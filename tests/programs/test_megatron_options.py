"""What the plan leaves to Megatron, Megatron refuses; what is to be accepted, it takes."""

from collections.abc import Iterator
from contextlib import closing
from datetime import date

import pytest

from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import parse_cluster, parse_job
from megatron_eks.ops.planning import megatron as module
from megatron_eks.ops.planning import validate
from megatron_eks.ops.planning.megatron import Megatron
from tests.config import test_option_pairs
from tests.config.test_job_errors import CASES, CLUSTER, GOOD, changed
from tests.config.test_option_pairs import MEGATRON
from tests.plan.jobs import test_overrides

TODAY = date(2026, 11, 1)


@pytest.fixture(scope="module")
def megatron() -> Iterator[Megatron]:
    """Start Megatron once."""
    with closing(Megatron()) as started:
        yield started


def asked(megatron: Megatron, text: str, cluster_text: str = CLUSTER) -> list[str]:
    """Return what Megatron says of a job file, whatever the plan has against it."""
    cluster, _ = parse_cluster(read_mapping(cluster_text, "c.yaml"))
    document = read_mapping(text, "j.yaml")
    job, _ = parse_job(document)
    assert cluster is not None
    assert job is not None
    return [str(each) for each in document.locate(megatron.findings(job, cluster))]


@pytest.mark.programs
@pytest.mark.parametrize(
    "case",
    [
        case
        for case in CASES
        if any(word in case["by"] for word in ("extra_args: [", "overrides: {"))
        and not any(line.startswith("error") for line in case["expect"])
    ],
)
def test_it_says_what_the_plan_does_not(megatron, case):
    """At the place of the mistake."""
    found = [line.partition(": ")[0] for line in asked(megatron, changed(case))]
    told = [line for line in case["expect"] if line.startswith("megatron")]
    assert sorted(found) == sorted(line.replace("megatron", "error", 1) for line in told)
    assert not megatron.not_asked


@pytest.mark.programs
def test_its_options_are_told_as_the_keys_that_people_write(megatron):
    """It knows no job file."""
    more = "extra_args: [--lr-warmup-fraction, '0.01']"
    (said,) = asked(megatron, GOOD.replace("  keep_days: 7", more))
    assert said.endswith("; --lr-warmup-iters is training.warmup_iters")
    more = "extra_args: [--optimizer-cpu-offload]"
    (said,) = asked(megatron, GOOD.replace("  keep_days: 7", more))
    assert said.endswith("- add or change what it names, or remove the option")


@pytest.mark.programs
@pytest.mark.parametrize(
    "case",
    [case for case in test_option_pairs.CASES if case["said"] in {None, MEGATRON}],
    ids=lambda case: case["words"],
)
def test_pairs(megatron, case):
    """Options that go together or not, beside each other or their model."""
    _, text, cluster = test_option_pairs.texts(case)
    assert bool(asked(megatron, text, cluster)) == bool(case["said"])


@pytest.mark.programs
@pytest.mark.parametrize(("overrides", "changes", "words"), test_overrides.ASKED)
def test_overrides_of_bridge(megatron, overrides, changes, words):
    """Those that mean the same as an option, whatever the recipe has."""
    text = test_overrides.written(overrides, *changes)
    lines = asked(megatron, text, test_overrides.on("p5.48xlarge"))
    assert [words in line for line in lines] == [True] * bool(words)


MISTAKE = GOOD.replace("  keep_days: 7", "extra_args: [--adam-eps, small]")


@pytest.mark.programs
def test_an_image_of_ones_own_may_have_another_megatron(megatron):
    """So its users are only warned."""
    own = f"image: 111122223333.dkr.ecr.us-east-2.amazonaws.com/own@sha256:{'0' * 64}"
    (line,) = asked(megatron, MISTAKE.replace("image: megatron", own))
    assert line.startswith("warning MEKS-0332")


@pytest.mark.programs
def test_validate_asks(tmp_path, capsys):
    """What Megatron says is a finding among the others."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "jobs" / "one.yaml").write_text(MISTAKE)
    assert validate.run([], tmp_path / "cluster.yaml", "table", TODAY) == 2
    said = capsys.readouterr()
    assert "extra_args[0]: --adam-eps: Megatron 0.19.2 says" in said.out
    assert "not asked" not in said.err


@pytest.mark.parametrize(
    ("python", "why"),
    [
        (None, "it is not installed here; to install it: make programs"),
        ("/bin/false", "it does not start; to see why: /bin/false"),
    ],
)
def test_where_it_cannot_be_asked(python, why, tmp_path, capsys, monkeypatch):
    """It is said once, and nothing is found; a job without such options is no question."""
    monkeypatch.setattr(module, "python_with", lambda _: python)
    (tmp_path / "jobs").mkdir()
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    for name, text in (("one", GOOD), ("two", MISTAKE), ("three", MISTAKE)):
        (tmp_path / "jobs" / f"{name}.yaml").write_text(text.replace("cpt-techpulse", name, 1))
    files = [tmp_path / "jobs" / "one.yaml"]
    assert validate.run(files, tmp_path / "cluster.yaml", "table", TODAY) == 0
    assert "not asked" not in capsys.readouterr().err
    validate.run([], tmp_path / "cluster.yaml", "table", TODAY)
    said = capsys.readouterr()
    assert said.err.count(f"not asked of Megatron: {why}") == 1
    assert "--adam-eps" not in said.out
