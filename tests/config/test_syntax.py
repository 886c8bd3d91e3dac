"""Texts that are not YAML: the line to mend, and what to write."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from megatron_eks.config.load import read_documents

CASES: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("syntax_errors.yaml").read_text()
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["expect"][:50])
def test_cause_and_remedy(case: dict[str, Any]) -> None:
    """The finding names the cause, which may be above the place where the parser gave up."""
    (document,) = read_documents(case["text"], "c.yaml")
    (finding,) = document.findings
    assert str(finding) == "error MEKS-0002 c.yaml:{} .: not valid YAML: {}".format(
        *case["expect"].split(": ", 1)
    )
