"""`meks completion`: what the Tab key gives in real shells."""

import os
import shutil
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest

from tests import command
from tests.screens import Screen

ROOT = Path(__file__).parents[2]
# The scripts ask `meks` for names: this checkout's.
_ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
# `make test` installs the two that not every machine has.
_SHELLS = [
    pytest.param("bash"),
    *(pytest.param(name, marks=pytest.mark.tools) for name in ("zsh", "fish")),
]
# What is typed before Tab, and what must appear; each is the only way to go on.
_CASES = [
    ("meks valid", "meks validate"),
    ("meks shell --all", "meks shell --all-ranks"),
    ("meks submit fetch-tok", "meks submit fetch-tokenizer"),
    ("meks logs export", "meks logs export-techpulse"),
    ("meks nodes p4", "meks nodes p4d"),
]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """Write the script of each shell as `meks` prints it."""
    folder = tmp_path_factory.mktemp("completion")
    for shell in ("bash", "zsh", "fish"):
        done = command.meks("completion", shell)
        (folder / shell).mkdir()
        (folder / shell / "_meks").write_text(done.stdout)
    return folder


def interactive(shell: str, folder: Path) -> Screen:
    """Return a shell at a terminal that knows the script."""
    words = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}[shell]
    environment = {**_ENVIRONMENT, "TERM": "dumb", "HOME": str(folder)}
    begin = partial(subprocess.Popen, words, cwd=ROOT, env=environment, start_new_session=True)
    terminal = Screen(begin)
    read = f"source {folder}/bash/_meks"
    if shell == "zsh":
        read = f"fpath=({folder}/zsh $fpath); autoload -Uz compinit; compinit -u"
    terminal.type(f"{read}; echo rea''dy\n")
    terminal.shows("ready")
    return terminal


@pytest.mark.parametrize("shell", [each for each in _SHELLS if each.values[0] != "fish"])
def test_the_tab_key(shell, scripts):
    """Commands, options, jobs of jobs/, pools of the cluster file."""
    terminal = interactive(shell, scripts)
    try:
        for typed, shown in _CASES:
            terminal.type(typed)
            terminal.shows(typed)
            # zsh takes a Tab for a letter where more was typed already.
            time.sleep(0.5)
            terminal.type("\t")
            terminal.shows(shown.removeprefix(typed))
            # Ctrl-U: another line.
            terminal.type("\x15")
    finally:
        terminal.close()


@pytest.mark.parametrize("shell", [each for each in _SHELLS if each.values[0] == "fish"])
def test_what_fish_would_offer(shell, scripts):
    """It tells without a terminal."""
    for typed, shown in _CASES:
        done = subprocess.run(  # noqa: S603 -- a shell
            [shell, "--no-config", "-c", f"source {scripts}/fish/_meks; complete -C '{typed}'"],
            cwd=ROOT,
            env={**_ENVIRONMENT, "HOME": str(scripts)},
            capture_output=True,
            text=True,
            check=True,
        )
        offered = [line.split("\t")[0].strip() for line in done.stdout.splitlines()]
        assert offered == [shown.split()[-1]]


def test_outside_of_a_project_nothing_is_offered_and_nothing_said(scripts, tmp_path):
    """Neither jobs nor an error on the line."""
    function = f"source {scripts}/bash/_meks; COMP_WORDS=(meks submit ''); COMP_CWORD=2; "
    find = 'set -- $(complete -p meks); while [ "$1" != -F ]; do shift; done; '
    ask = '$2 meks "" submit; echo "${COMPREPLY[@]}"'
    done = subprocess.run(  # noqa: S603 -- a shell
        [shutil.which("bash") or "bash", "-c", function + find + ask],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")
