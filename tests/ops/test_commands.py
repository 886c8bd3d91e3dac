"""The pages name commands and flags that there are, and every command has a page."""

import re
from functools import cache
from pathlib import Path

import pytest

from megatron_eks.plan.cluster.alerts import ALERTS
from tests import command

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

# A command in a block, or in a span of code.
_USE = re.compile(r"(?:\$ |`|&& )meks ([a-z][a-z-]*)([^`\n&|#]*)")
_ADVICE = re.compile(r"\bmeks ([a-z][a-z-]*)([^.;:,]*)")
_FLAG = re.compile(r"--[a-z][a-z-]+")

_, *NAMES = command.commands()
COMMANDS = {name for name, *_ in NAMES}

# It is for kubectl, and stands in the section of `meks kubeconfig`.
_INNER = {"token"}


@cache
def help_of(*words: str) -> str:
    """Return what `--help` prints on a terminal of 80 columns."""
    done = command.meks(*words, "--help", env={"PATH": "/usr/bin:/bin", "COLUMNS": "80"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def _action(command: str, rest: str) -> tuple[str, ...]:
    """Return the action of a command that has several, as `ls` of `meks ckpt ls`."""
    word = next(iter(rest.split()), "")
    return (word,) if (command, word) in NAMES else ()


USES = sorted({(page.name, *use) for page in PAGES for use in _USE.findall(page.read_text())})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_a_page_ends(page):
    """Otherwise the text behind it is shown as a console's."""
    fences = [line for line in page.read_text().splitlines() if line.startswith("```")]
    assert set(fences[1::2]) <= {"```"}
    assert len(fences) % 2 == 0


def unknown(uses):
    """Return the uses of commands and flags that there are not."""
    wrong = [use for use in uses if use[1] not in COMMANDS]
    wrong += [
        (place, command, flag)
        for place, command, rest in uses
        if command in COMMANDS
        for flag in _FLAG.findall(rest)
        if flag not in help_of(command, *_action(command, rest))
    ]
    return wrong


def test_pages_use_the_commands_and_flags_that_there_are():
    """Whatever is written after `$ meks` or between backticks."""
    assert not unknown(USES)


def test_dashboards_and_alarms_advise_commands_and_flags_that_there_are():
    """In the words below the title of a panel, and at the end of a message."""
    boards = (ROOT / "assets" / "dashboards").glob("*.json")
    texts = {board.stem: board.read_text() for board in boards}
    texts |= {alert.name: alert.remedy for alert in ALERTS}
    uses = [(place, *use) for place, text in texts.items() for use in _ADVICE.findall(text)]
    assert uses
    assert not unknown(uses)


def test_every_command_has_its_line_in_the_readme_or_its_section():
    """One that nobody reads about is not used."""
    text = "".join(page.read_text() for page in PAGES)
    missing = [
        name
        for name in COMMANDS
        if f"`meks {name}" not in text and f"`{name}`" not in text and name not in _INNER
    ]
    assert not missing


@pytest.mark.parametrize("words", NAMES, ids=" ".join)
def test_help_fits_a_terminal_and_ends_with_examples(words):
    """80 columns, plain text; each example is of this command."""
    text = help_of(*words)
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert f" meks {' '.join(words)}" in text.partition("examples:")[2].replace("(", " ")


def test_meks_alone_lists_all_commands():
    """As `--help` does, and it is no mistake."""
    done = command.meks(env={"PATH": "/usr/bin:/bin", "COLUMNS": "80"})
    assert (done.returncode, done.stdout) == (0, help_of())
    assert set(re.findall(r"^    ([a-z][a-z-]*) ", done.stdout, re.MULTILINE)) >= COMMANDS


def test_help_is_a_word_too():
    """Of `meks`, and of a command."""
    for words in ((), ("plan",)):
        done = command.meks("help", *words, env={"PATH": "/usr/bin:/bin", "COLUMNS": "80"})
        assert (done.returncode, done.stdout) == (0, help_of(*words))
