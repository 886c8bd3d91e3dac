"""Whatever project is accepted: its manifests are objects that Kubernetes and the guards accept."""

import pytest
from hypothesis import event, given, settings

from megatron_eks.guards.check import check_manifests
from tests.charts.validation import assert_valid
from tests.properties.projects import Drawn, projects

pytestmark = pytest.mark.sweep


@settings(deadline=None, max_examples=10)
@given(projects)
def test_accepted_projects_are_rendered_and_without_fault(drawn: Drawn) -> None:
    """Every object has its schema's form, and no guard finds anything in them."""
    if drawn.plan is None:
        event("refused")
        return
    event(f"accepted, {len(drawn.jobs)} jobs")
    made = drawn.manifests()
    for each in made:
        assert_valid(each)
    assert [str(finding) for finding in check_manifests(made)] == []
