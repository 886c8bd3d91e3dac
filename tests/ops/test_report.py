"""`meks report` of a run that started three times, as its record tells of it."""

import re
from dataclasses import replace
from datetime import UTC, date, datetime
from html.parser import HTMLParser

import pytest

from megatron_eks.diagnosis.diagnose import diagnose
from megatron_eks.ops.jobs import ended, report, report_page, starts, status
from megatron_eks.plan.spending import RankTime, job_spending
from megatron_eks.project import ROOT, load_project

NAME = "megatron-cpt-techpulse"
NOW = datetime(2026, 11, 23, 9, tzinfo=UTC)
MS = 45000
HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[31m\u202e"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
XID = "NVRM: Xid (PCI:0000:10:1c): 79, GPU has fallen off the bus."


def step(number, loss):
    """Return a step as Megatron prints it, ten of which are between two lines."""
    return (
        f" [2026-11-22 08:00:00] iteration {number:8}/    2000 | consumed samples: 512 |"
        f" elapsed time per iteration (ms): {MS:.1f} | throughput per GPU (TFLOP/s/GPU): 150.0 |"
        f" learning rate: 1.0E-05 | global batch size: 512 | lm loss: {loss:.6E} |"
    )


def ran(number, begin, end, first, last, *, code=0, words=(), saves=()):
    """Yield what both ranks print in one start."""
    after = f", after {number - 1:04}" if number > 1 else ""
    for rank in (0, 1):
        yield f"[{rank}] record: start {number:04}, 2026-11-22T{begin}Z{after}"
        if first and rank == 0:
            yield f"[0]   successfully loaded checkpoint from /c [ t 1/1 ] at iteration {first}"
        for at in range(first + 10, last + 1, 10):
            yield f"[1] {step(at, 2 + 8 / (1 + at / 60))}" if rank else "[0] noise"
            if at in saves and not rank:
                yield f"[0]   successfully saved checkpoint from iteration {at} to /c"
        yield from (f"[{rank}] {line}" for line in words if rank)
        how = f"ended with exit code {code}" if code >= 0 else f"was ended by signal {-code}"
        yield f"[{rank}] record: {how}, 2026-11-22T{end}Z{': its last words' * bool(code)}"


LINES = [
    *ran(1, "00:00:00", "05:00:00", 0, 330, code=1, words=(OOM, HOSTILE), saves=(100, 200, 300)),
    *ran(2, "05:01:00", "09:30:00", 300, 620, code=-9, words=(XID,), saves=(400, 500, 600)),
    *ran(3, "09:35:00", "23:59:00", 600, 1720, code=1, words=(OOM,), saves=(1000, 1700)),
]


@pytest.fixture(scope="module")
def project():
    """Read the files that a checkout starts with."""
    return load_project(ROOT / "cluster.yaml", date(2026, 11, 22))


@pytest.fixture(scope="module")
def found(project):
    """Return what is known of the run, whose job is gone."""
    plan = next(each for each in project.jobs if each.name == NAME)
    look = ended.gone(plan, "megatron-workshop", LINES, NOW)
    known = starts.read(LINES, "Failed", NOW)
    rank = RankTime(24.0, 1.0, 20.0, runs=False)
    return report.Report(
        state=status.of(look, project),
        cause=diagnose(report.newest(LINES, [2, 3])),
        starts=known,
        plan=plan,
        spending=job_spending([rank] * 2),
        xids=(f"[1] {XID}", f"[1] {HOSTILE}"),
        settings=f"name: x\n# {HOSTILE}\nenv: {{HF_TOKEN: hf_abcdefghijklmnopqrstuvwxyz012345}}",
        versions=(("image", "megatron@sha256:0"),),
        notes=(),
    )


def test_what_each_start_was_and_what_of_it_counted(found):
    """Steps after the checkpoint that the next one went on from were done again."""
    rows = [(x.number, x.went_on, x.reached, x.counted, x.lost) for x in found.starts]
    assert rows == [(1, 0, 330, 300, 30), (2, 300, 620, 300, 20), (3, 600, 1720, 1100, 20)]
    assert [each.code for each in found.starts] == ["MEKS-0901", "MEKS-0905", "MEKS-0901"]
    assert [each.seconds for each in found.starts] == [18000, 16140, 51840]
    assert found.useful == pytest.approx(1700 * 45 / 86340)


class _Reader(HTMLParser):
    """Reads a page as a browser would: elements, their attributes, and text."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.words = set(), set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def read(found):
    """Return the page as a reader of HTML has it."""
    reader = _Reader()
    reader.feed(report_page.page(found))
    return reader


def test_the_first_screen_says_what_happened_when_and_what_it_cost(read):
    """Before anything else, and with the code of the cause."""
    text = " ".join(read.words).partition("Loss and speed")[0]
    for said in (
        *("Failed", "MEKS-0901", "2026-11-22 00:00 UTC to 2026-11-22 23:59 UTC"),
        *("1720 of 2000", "step 1700", "960.00 USD", "48.00 node-hours", "70 steps lost", "89%"),
    ):
        assert said in text, said


def test_what_others_wrote_is_text_and_nothing_is_loaded(read, found):
    """A log's line makes no element, a token is taken out, and the page names no address."""
    assert not read.tags & {"script", "img", "link", "iframe", "a", "object"}
    assert not [each for each in read.attributes if each.startswith(("on", "src", "href"))]
    page = report_page.page(found)
    assert "&lt;script&gt;alert(1)" in page
    assert not re.search("[\x1b\u202e]|hf_abcdef|url\\(|@import", page)


def test_curves_have_the_band_and_a_mark_for_each_end(found):
    """Steps that were done again are lines of their own."""
    page = report_page.page(found)
    loss, speed = re.findall(r"<figure>.*?</figure>", page, re.DOTALL)
    assert loss.count('class="line"') == speed.count('class="line"') == 3
    assert loss.count('class="line lost"') == loss.count('class="mark"') == 3
    assert [*re.findall(r"<b [^>]*>(\d)</b>", loss)] == ["1", "2", "3"]
    assert 'class="band"' in speed


def test_a_job_of_which_nothing_is_known_has_a_page(found, project):
    """No record, no price, no plan: it says so."""
    plan = found.plan
    look = ended.gone(plan, "megatron-workshop", [], NOW)
    empty = replace(
        found,
        state=replace(status.of(look, project), planned=None, no_plan="no job file"),
        cause=None,
        starts=(starts.alone(look.logs.end),),
        plan=None,
        spending=job_spending(()),
        xids=(),
        settings="",
        notes=("its record is lost",),
    )
    page = report_page.page(empty)
    assert "fewer than two steps are known" in page
    assert "note: its record is lost" in page
