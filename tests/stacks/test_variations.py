"""Every kind of cluster: without a finding of the guards, cfn-lint and cdk-nag."""

import pytest

from megatron_eks.guards.check import findings_for_templates
from tests.stacks.synthesis import app_of, cluster_file, linted, plan_of
from tests.stacks.test_nag import findings
from tests.variations import VARIATIONS

# cfn-lint takes half a minute of processor time for all of them.
pytestmark = pytest.mark.tools


@pytest.mark.parametrize("name", VARIATIONS)
def test_nobody_finds_fault(sources, tmp_path, name):
    """One synthesis, judged by all three."""
    cluster = cluster_file()
    VARIATIONS[name](cluster)
    app = app_of(plan_of(cluster), sources, tmp_path)
    assert findings(app, tmp_path) == set()
    templates = {str(path): path.read_text() for path in tmp_path.glob("*.template.json")}
    assert [str(finding) for finding in findings_for_templates(templates)] == []
    assert [each for text in templates.values() for each in linted(text)] == []
