"""Every row of the source guides' tables is found by the check that the runbook names."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from megatron_eks.config.codes import Code
from megatron_eks.config.explanations import explanations
from megatron_eks.diagnosis.codes import LogCode
from megatron_eks.diagnosis.diagnose import diagnose
from megatron_eks.ops.aws.causes import cause_of
from megatron_eks.project import ROOT
from tests.ops.proofs import PROOFS

RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
SHOWS: dict[str, str] = yaml.safe_load(Path(__file__).with_name("troubles.yaml").read_text())
"""The line in a log that shows a row's trouble."""


class Trouble(NamedTuple):
    """A row of the runbook's table, which has all rows of the source guides."""

    guide: str
    row: str
    codes: tuple[str, ...]
    section: str

    @property
    def shows(self) -> str:
        """What a log prints; nothing where no log does."""
        return SHOWS.get(self.row, "")


ROWS = [
    Trouble(guide, row, tuple(f"MEKS-{code}" for code in codes.split(", ")), section)
    for guide, row, codes, section in re.findall(
        r"^\| (.+?) \| (.+?) \| ([\d, ]+) \| \[(.+?)\]\(#", RUNBOOK, re.MULTILINE
    )
]


def test_no_row_of_a_guide_is_missing():
    """As many rows as the guides have; one with several causes has several here."""
    counts = {row.guide: 0 for row in ROWS}
    for row in ROWS:
        counts[row.guide] += 1
    assert counts == {
        "launch, common issues": 8,
        "launch, EFA and NCCL check": 5,
        "launch, utilization check": 3,
        "launch, checklist": 8,
        "containers, common issues": 4,
        "containers, validation": 4,
        "containers, debugging commands": 3,
        "Kubernetes, troubleshooting": 5,
        "CodeBuild, build failures": 2,
        "CodeBuild, deployment failures": 5,
        "CodeBuild, training failures": 3,
        "CodeBuild, monitoring issues": 1,
        "CodeBuild, cluster validation": 5,
    }


@pytest.mark.parametrize("row", [r for r in ROWS if r.shows], ids=lambda row: row.row)
def test_a_rows_log_is_explained_by_its_first_code(row: Trouble):
    """The very line, through `meks logs --explain`; what only follows is named as that."""
    found = diagnose(row.shows.splitlines())
    follows = [each.code for each in found.cascades] if found.code is None else []
    assert row.codes[0] in {found.code, *follows}


def test_what_is_good_in_the_launch_guide_shows_no_trouble():
    """EFA in use."""
    good = ["NET/OFI Initializing aws-ofi-nccl 1.17.2", "NET/OFI Selected Provider is efa"]
    assert diagnose(good).code is None


def test_a_build_failure_of_the_guides_has_its_cause():
    """`meks build` says it with MEKS-0754."""
    rows = [row for row in ROWS if Code.BUILD_FAILED in row.codes]
    assert len(rows) == 2
    for row in rows:
        cause = cause_of([row.shows])
        assert cause is not None
        assert not cause.passes


@pytest.mark.parametrize(
    "code",
    sorted(
        {code for row in ROWS for code in row.codes if code not in {*LogCode, Code.BUILD_FAILED}}
    ),
)
def test_a_rows_check_finds_it(code: str, tmp_path: Any):
    """Configuration, manifest, template, account or cluster, through the real check."""
    assert code in PROOFS[code](tmp_path)


def test_every_log_code_of_a_row_has_a_line_that_shows_it():
    """In the row or in another one; and every proof is needed."""
    shown = {row.codes[0] for row in ROWS if row.shows}
    named = {code for row in ROWS for code in row.codes}
    assert SHOWS.keys() <= {row.row for row in ROWS}
    assert named & set(LogCode) <= shown
    assert PROOFS.keys() <= named


def test_every_row_has_its_section_with_its_codes():
    """In the runbook, under the heading that the row names; codes mean what `meks explain` says."""
    parts = re.split(r"^### (.+)$", RUNBOOK, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    for row in ROWS:
        assert row.codes
        for code in row.codes:
            assert code in explanations()
            assert code in sections[row.section], f"{row.section}: {code}"
