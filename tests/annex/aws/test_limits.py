"""What is not checked is said in one list, wherever people look for it."""

import json
import re

from megatron_eks.localcloud.aws.limits import NOT_CHECKED
from tests import command
from tests.annex.aws.commands import ROOT


def test_the_command_prints_the_list():
    """`meks local limits` needs nothing to run."""
    done = command.meks("local", "limits", "-o", "json")
    assert json.loads(done.stdout) == list(NOT_CHECKED)


def test_the_page_has_the_list():
    """docs/local-aws.md ends with the same sentences in the same order."""
    page = (ROOT / "docs" / "local-aws.md").read_text().rpartition("AWS's consent.")[2]
    points = [" ".join(each.split()) for each in re.split(r"^- ", page, flags=re.MULTILINE)[1:]]
    assert points == list(NOT_CHECKED)
