"""What the README prints is what its commands print."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import normalise

pytestmark = pytest.mark.tools

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "docs" / "plan.md", *sorted(ROOT.glob("examples/*/README.md"))]

# A comment that holds a command, and the block that shows its output.
GOLDEN = re.compile(r"<!-- golden: (.+?) -->\n```text\n(.*?)```", re.DOTALL)

BLOCKS = [(page, *block) for page in PAGES for block in GOLDEN.findall(page.read_text())]


@pytest.mark.parametrize(("page", "command", "shown"), BLOCKS)
def test_output_is_as_shown(page, command, shown, tmp_path, request):
    """Each marked block is the output of its command on the shipped project."""
    shutil.copy(ROOT / "cluster.yaml", tmp_path)
    for folder in ("jobs", "examples"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    done = subprocess.run(  # noqa: S603 -- the README's own commands
        ["/bin/bash", "-c", command],
        cwd=tmp_path,
        env={"PATH": f"{ROOT}/.venv/bin:/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    if request.config.getoption("--snapshot-update"):
        old, new = (
            f"<!-- golden: {command} -->\n```text\n{text}```" for text in (shown, done.stdout)
        )
        page.write_text(page.read_text().replace(old, new))
        return
    assert normalise.text(done.stdout, {}) == normalise.text(shown, {})


def test_golden_blocks_exist():
    """The README shows a plan and an error, a page the plan and a job, the first run its price."""
    shown = [str(page.relative_to(ROOT)) for page, *_ in BLOCKS]
    assert shown == ["README.md"] * 2 + ["docs/plan.md"] * 2 + ["examples/g5/README.md"]


def test_links_lead_somewhere():
    """Every relative link of README and docs names a file of the repository."""
    for page in (*PAGES, *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), (page.name, target)
