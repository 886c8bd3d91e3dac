"""cfn-lint, AWS's own linter, on every template."""

import pytest

from tests.stacks.synthesis import linted


@pytest.mark.parametrize("part", ["Network", "Storage", "Images", "Cluster"])
def test_templates_are_without_finding(assembly, part):
    """Schemas, references and values, as far as they can be known without an account."""
    assert linted(assembly.text(part)) == []


def test_the_linter_does_look(assembly):
    """A misspelt property must be found, or the test above says nothing."""
    text = assembly.text("Storage").replace('"StorageCapacity"', '"StorageCapacty"')
    assert "E3002" in str(linted(text))
