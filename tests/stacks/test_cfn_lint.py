"""cfn-lint, AWS's own linter, on every template."""

import pytest
from cfnlint import ManualArgs, api

ACCEPTED = ["W3010"]  # The zone is chosen because the capacity is there.


@pytest.mark.parametrize("part", ["Network", "Storage", "Images", "Cluster"])
def test_templates_are_without_finding(assembly, part):
    """Schemas, references and values, as far as they can be known without an account."""
    text = (assembly.directory / f"{assembly.plan.stack(part)}.template.json").read_text()
    config = ManualArgs(ignore_checks=ACCEPTED, regions=[assembly.plan.region])
    assert [str(finding) for finding in api.lint(text, config=config)] == []


def test_the_linter_does_look(assembly):
    """A misspelt property must be found, or the test above says nothing."""
    path = assembly.directory / f"{assembly.plan.stack('Storage')}.template.json"
    text = path.read_text().replace('"StorageCapacity"', '"StorageCapacty"')
    config = ManualArgs(ignore_checks=ACCEPTED, regions=[assembly.plan.region])
    assert "E3002" in {finding.rule.id for finding in api.lint(text, config=config)}
