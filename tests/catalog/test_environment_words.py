"""Values that a library does not take, and names that are nearly those which it reads."""

from pathlib import Path

import pytest
import yaml

from megatron_eks.catalog.environment import POLICIES, Verdict, meant
from megatron_eks.catalog.environment_verdicts import Context, judge

TABLE = yaml.safe_load(Path(__file__).with_name("values.yaml").read_text())


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [(name, *each) for name, values in TABLE["wrong"].items() for each in values.items()],
)
def test_values_that_no_library_takes(name, value, said):
    """Each is judged by what the library makes of it, and the remedy says what to write."""
    policy = judge(name, value, Context())
    assert [policy.verdict, policy.instead] == said


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in TABLE["right"].items() for value in values],
)
def test_values_that_a_library_takes(name, value):
    """Nothing is said of them."""
    assert judge(name, value, Context()).verdict is Verdict.ALLOWED


@pytest.mark.parametrize(("name", "right"), TABLE["meant"].items())
def test_names_that_were_meant(name, right):
    """A name that nothing reads is one letter from the name that does."""
    assert meant(name, POLICIES) == right


@pytest.mark.parametrize("name", TABLE["own"].split())
def test_names_of_their_own(name):
    """What another library reads, or a build, is no slip."""
    assert meant(name, POLICIES) is None
