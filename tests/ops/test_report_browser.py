"""The pages of `meks report` and `meks profile` in a real browser: wide, narrow, in the dark."""

import re
import shutil
import subprocess

import pytest

from megatron_eks.ops.cluster import month
from megatron_eks.ops.cluster.billing import PoolHours
from megatron_eks.ops.jobs import profile, report_page, trace
from tests.ops.test_month import NOW, SINCE
from tests.ops.test_profile import written
from tests.ops.test_report import NAME, found, project

__all__ = ["found", "project"]

_BROWSER = shutil.which("chromium") or shutil.which("google-chrome") or ""
pytestmark = pytest.mark.tools

# The page runs no script, so one around it measures it; `srcdoc` keeps both of one origin.
FRAME = """<iframe id=page style="border:0;width:{width}px;height:900px" srcdoc="{page}"></iframe>
<script>onload = () => {{
  const inside = document.getElementById("page").contentDocument, root = inside.documentElement
  const style = inside.defaultView.getComputedStyle(inside.body)
  const first = inside.querySelector("dl, .outcome").getBoundingClientRect().top
  document.title = [root.scrollWidth, inside.querySelectorAll("polyline").length,
    style.backgroundColor, first < 900, inside.scripts.length].join("|")
}}</script>"""


@pytest.fixture(params=["run", "month", "profile"])
def page(request, found, project, tmp_path):
    """Return a page of each kind."""
    if request.param == "run":
        return report_page.page(found)
    if request.param == "profile":
        return profile.page("job", [trace.read(written(tmp_path))], tmp_path)
    runs = (month.Run(NAME, "blue", "Failed", found.starts, 2, "p4d", 16, 20.0),)
    pools = (PoolHours(project.cluster.pools[0], 3, 100.0, 20.0),)
    return month.page(month.Month("techpulse", SINCE, NOW, runs, pools, ("a note",)))


@pytest.fixture
def browse(page, tmp_path):
    """Return a function that opens the page in a window and says how it came out."""
    assert _BROWSER, "no Chromium is installed: make shells"

    def call(*options, width):
        text = page.replace("&", "&amp;").replace('"', "&quot;")
        (frame := tmp_path / "frame.html").write_text(FRAME.format(width=width, page=text))
        words = (
            "--headless=new",
            "--hide-scrollbars",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path}/c",
        )
        done = subprocess.run(  # noqa: S603 -- a browser on our own page
            [_BROWSER, *words, *options, "--dump-dom", f"file://{frame}"],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        (title,) = re.findall("<title>(.*?)</title>", done.stdout)
        return title.split("|")

    return call


@pytest.mark.parametrize("width", [360, 1200])
def test_it_fits_its_window(browse, page, width):
    """Nothing is wider than it, all curves are drawn, and the figures are on the first screen."""
    wide, curves, background, seen, scripts = browse(width=width)
    drawn = page.count("<polyline")
    assert (int(wide), int(curves), seen, scripts) == (width, drawn, "true", "0")
    assert drawn > 8 or "<figure" not in page
    assert background == "rgb(255, 255, 255)"


def test_it_is_dark_where_the_reader_wants_it(browse):
    """By the browser's own word, without a switch on the page."""
    dark = "--blink-settings=preferredColorScheme=0"
    assert browse(dark, width=800)[2] == "rgb(22, 24, 27)"
