"""Only colours pass to a terminal, and what people write in any script stays as it is."""

import io
import json
import subprocess
import sys

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from megatron_eks.ops.console import Console, SystemClock
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.output import structured, table
from megatron_eks.programs.printable import guard, log_line, own, plain, printable
from megatron_eks.project import ROOT
from tests import hostile

READABLE = (
    "Größe 5 µs, 3 %, …",
    "日本語のログ\u3000全角",
    "가나다 \u1112\u1161\u11ab",
    "کتاب‌خانه می‌خواهم",
    "שלום עולם",
    "السَّلامُ عليكم",
    "हिन्दी नमस्ते क्‍ष",
    "ภาษาไทย tiếng Việt Ελληνικά Русский",
    "👩‍💻 ❤️ ❤️‍🔥 葛\U000e0100",
    "100\xa0%\t|████████| 5/5\r\n",
    hostile.COLOURS,
)


@pytest.mark.parametrize("name", hostile.CORPUS)
def test_what_acts_is_written_out(name):
    """In the middle of a text, and no sign of it is lost."""
    text = hostile.CORPUS[name]
    assert hostile.acting(text)
    for shown in (printable(f"a{text}z"), plain(f"a{text}z"), log_line(f"a{text}z\n".encode())):
        assert hostile.acting(shown) == []
    assert len(printable(text)) > len(text)
    assert plain(f"\n\t{text}{hostile.COLOURS}").isprintable()


@pytest.mark.parametrize("text", READABLE)
def test_what_people_write_stays(text):
    """Joiners and selectors belong to words and emoji, wide spaces to lines."""
    assert printable(text) == text
    assert log_line(text.encode()) == text.rstrip("\r\n")


@given(st.text())
def test_it_is_done_once(text):
    """What has been written out is shown as it is; streams may be guarded twice."""
    shown = printable(text)
    assert hostile.acting(shown) == []
    assert printable(shown) == shown
    assert plain(shown) == plain(text)


def test_a_colour_ends_with_its_line():
    """The next line belongs to another rank."""
    assert log_line(b"\x1b[31mred\n") == "\x1b[31mred\x1b[0m"
    assert log_line(b"\x1b[31mred\x1b[m\n") == "\x1b[31mred\x1b[m"
    assert log_line(b"\x1b[31m10%\r20%\r\n") == "20%"


@pytest.mark.parametrize("text", [*hostile.CORPUS.values(), *READABLE])
def test_data_are_the_same_as_json_and_yaml(text):
    """A program reads them back; a terminal that they are shown on is safe, too."""
    value = {"name": text, "lines": [f"a{text}", text * 2]}
    for output, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        written = structured(value, output)
        assert read(written) == value
        assert read(printable(written)) == value
        assert hostile.acting(printable(written)) == []


def test_a_cell_of_a_table_is_one_line():
    """And as wide as it is shown."""
    (head, row) = table(("NAME", "SIZE"), [("a\n\x1b[31mb", "1")])
    assert row == r"a\n\x1b[31mb  1"
    assert head == "NAME          SIZE"


def test_a_console_is_guarded_whatever_its_streams_are():
    """Its questions too; what moves the cursor itself finds the stream below a guard."""
    out, err = io.StringIO(), io.StringIO()
    console = Console(io.StringIO(), out, err, SystemClock())
    console.write(f"{hostile.ALL}{hostile.COLOURS}\n")
    console.say(hostile.ALL)
    with pytest.raises(Failure, match="nobody is there to answer"):
        console.confirm(hostile.ALL)
    for stream in (out, err):
        assert hostile.acting(stream.getvalue()) == []
    assert hostile.COLOURS in out.getvalue()
    guarded = guard(out)
    guarded.writelines([hostile.ALL])
    assert hostile.acting(out.getvalue()) == []
    assert own(guarded) is own(out) is out
    assert guard(guarded) is guarded


def test_programs_guard_both_streams():
    """What a library prints, a traceback and a result with them; the JSON line stays one."""
    program = (
        "import sys\n"
        "from megatron_eks.programs import program\n"
        "def main(argv, report):\n"
        "    report.facts['name'] = argv[0]\n"
        "    print(argv[0])\n"
        "    program.say(argv[0])\n"
        "    report.findings.append(program.error(argv[0], argv[0], argv[0]))\n"
        "    raise ValueError(argv[0])\n"
        "sys.exit(program.run('x', main, sys.argv[1:]))\n"
    )
    text = hostile.ALL.replace("\0", "")
    done = subprocess.run(  # noqa: S603 -- our own program
        [sys.executable, "-c", program, text],
        env={"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"},
        capture_output=True,
        check=False,
    )
    out, err = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == 1
    assert (hostile.acting(out), hostile.acting(err)) == ([], [])
    assert "ValueError" in err
    assert json.loads(out.splitlines()[-1])["name"] == text


def test_a_traceback_is_guarded():
    """Python prints it when the guarded program is over already."""
    program = "from megatron_eks.programs.printable import guarded\n"
    program += "with guarded():\n    raise ValueError('a\\x1b]52;c;AAAA\\x07b')"
    done = subprocess.run(  # noqa: S603 -- our own program
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 1
    assert r"ValueError: a\x1b]52;c;AAAA\x07b" in done.stderr
