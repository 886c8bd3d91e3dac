"""Whatever the project renders is right."""

import pytest

from megatron_eks.guards.check import check_manifests, check_templates
from tests import examples
from tests.guards.slips import manifests, templates


@pytest.mark.parametrize("cluster", ["default", *examples.NAMES])
def test_rendered_output_is_without_fault(cluster):
    """The default cluster and every example."""
    assert [str(each) for each in check_templates(templates(cluster))] == []
    assert [str(each) for each in check_manifests(manifests(cluster))] == []
