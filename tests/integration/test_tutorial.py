"""The tutorial's commands, one after the other in one shell, and the output that it shows."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from megatron_eks.localcloud.kubernetes.build import cache_folder

pytestmark = [pytest.mark.tools, pytest.mark.control_plane, pytest.mark.programs]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
BLOCKS = re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL)
# Two minutes of two processors; a machine that does much else takes several times as long.
SECONDS = 1200

# What a checkout has and its user changes; the rest is linked.
_OWN = {".git", "cdk.out", "dist", "outputs.json"}
# A proxy that nobody listens on: whatever leaves this machine fails at once.
_OFFLINE = dict.fromkeys(
    ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9"
)
_END = "=== block"
# Everything is installed already, and no test installs anything into the checkout that runs it.
_MAKE = " ".join(
    f"-o {each}"
    for each in (
        ".venv/.runtime",
        ".venv/.dev",
        "node_modules/.installed",
        ".venv-programs/.installed",
    )
)


def commands(block: str) -> str:
    """Return what is typed in a block, lines without a prompt that go on included."""
    found: list[str] = []
    open_quote = False
    for line in block.splitlines():
        if line.startswith("$ ") or open_quote or (found and found[-1].endswith("\\")):
            found.append(line.removeprefix("$ "))
            open_quote ^= line.count("'") % 2 == 1
    return "\n".join(found)


def shown(block: str) -> list[str]:
    """Return the lines of output in a block."""
    typed = {f"$ {line}" for line in commands(block).splitlines()}
    typed |= set(commands(block).splitlines())
    return [line for line in block.splitlines() if line not in typed]


def pattern(line: str) -> str:
    """Return what a shown line matches: three dots stand for anything."""
    return ".*".join(re.escape(part) for part in re.split(r" ?\.\.\.", line))


@pytest.fixture
def checkout(tmp_path):
    """Return a folder that looks like a fresh checkout with everything installed."""
    folder, home = tmp_path / "checkout", tmp_path / "home"
    folder.mkdir()
    for each in ROOT.iterdir():
        if each.name not in _OWN:
            (folder / each.name).symlink_to(each)
    cache = home / ".cache" / "megatron-eks"
    cache.mkdir(parents=True)
    (cache / "kubernetes").symlink_to(cache_folder(os.environ) / "kubernetes")
    yield folder
    bash(folder, ". .venv/bin/activate; meks local down")


def bash(checkout: Path, script: str) -> "subprocess.CompletedProcess[str]":
    """Run a script as a user with an empty home would."""
    return subprocess.run(  # noqa: S603 -- the tutorial's own commands
        ["/bin/bash", "-c", script],
        cwd=checkout,
        env={
            **_OFFLINE,
            "HOME": str(checkout.with_name("home")),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            # The templates of every example are validated elsewhere.
            "CDK_VALIDATION": "false",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=SECONDS,
    )


@pytest.mark.long
@pytest.mark.timeout(SECONDS + 100)
def test_every_command_works_and_prints_what_is_shown(checkout):
    """From `make setup` to an empty account, offline; shown lines come in their order."""
    parts = [f"{commands(block)}\necho '{_END}'" for block in BLOCKS]
    start = f'set -e -o pipefail\nmake() {{ command make {_MAKE} "$@"; }}\n'
    done = bash(checkout, start + "\n".join(parts))
    printed = done.stdout.split(f"{_END}\n")
    for block, text in zip(BLOCKS, printed, strict=False):
        lines = iter(text.splitlines())
        for line in shown(block):
            found = any(re.fullmatch(pattern(line), each) for each in lines)
            assert found, f"{line!r} is not in the output of\n{block}\nwhich is\n{text[-6000:]}"
    assert done.returncode == 0, printed[-1][-6000:]


def test_shown_lines_fit_a_terminal():
    """Prose and output are read at eighty columns; tables and links may be longer."""
    text = [line for line in PAGE.read_text().splitlines() if not line.startswith("|")]
    assert [line for line in text if len(line) > 82] == []
