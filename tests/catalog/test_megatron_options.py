"""The table of Megatron's options, against the version of the image and against the plan."""

import subprocess
from pathlib import Path

import pytest

from megatron_eks.catalog import pins
from megatron_eks.catalog.job_keys import OF_OPTIONS
from megatron_eks.catalog.megatron_conflicts import ALWAYS
from megatron_eks.catalog.megatron_options import FLAGS, OPTIONS, SINGLE, VERSION
from tests.charts.rendered import training_job
from tests.programs.prepare_files import PYTHON

ROOT = Path(__file__).parents[2]


def test_it_is_of_the_version_that_the_image_runs():
    """A new pin needs a new table: see the generator's own words."""
    assert VERSION == pins.MEGATRON_CORE_VERSION


@pytest.mark.parametrize("name", ["megatron-cpt-techpulse", "megatron-gpt-7b"])
def test_the_parser_knows_every_option_of_a_plan(name):
    """And takes as many words after each as the plan writes."""
    args = training_job(name=name).args
    words = args[args.index("--") + 1 :]
    starts = [index for index, word in enumerate(words) if word.startswith("--")]
    for start, end in zip(starts, [*starts[1:], len(words)], strict=True):
        option, values = words[start], words[start + 1 : end]
        assert option in OPTIONS
        assert not values if option in FLAGS else len(values) == 1 or option not in SINGLE, option


def test_the_parser_knows_what_only_some_plans_write():
    """The options that a job file may not add are options."""
    assert set(OF_OPTIONS) <= set(OPTIONS)


def test_what_is_always_refused_is_a_setting_that_no_plan_has():
    """A slip in the table of conflicts would refuse nothing, or what is planned."""
    args = training_job(name="megatron-cpt-techpulse").args
    planned = {OPTIONS[word] for word in args[args.index("--") + 1 :] if word in OPTIONS}
    assert not planned & set(ALWAYS)
    assert set(ALWAYS) <= set(OPTIONS.values())


@pytest.mark.oracle
@pytest.mark.programs
def test_it_is_what_the_parser_says():
    """The committed table is the generator's output with the pinned megatron-core."""
    done = subprocess.run(  # noqa: S603 -- our own script
        [PYTHON, "-W", "ignore", ROOT / "tests/upstream/megatron_options.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (ROOT / "megatron_eks/catalog/megatron_options.txt").read_text()
