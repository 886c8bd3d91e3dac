"""Which files of a folder go to the pods; git itself is the judge of .gitignore."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_eks.code_folders import read_folder
from megatron_eks.plan.jobs.code_files import decision, patterns

NAMES = [
    *("a.py", "b.log", "src/a.py", "src/data/x.csv", "src/data/deep/y.csv", "doc/data/z.md"),
    *("build/a.py", "src/build/b.py", "a [1].py", "#c.py", "!d.py", "src/aa.py", "x"),
]
LINES = [
    *("*.log", "!b.log", "/a.py", "src/a.py", "data/", "data", "/data/", "src/*.py", "**/y.csv"),
    *("src/**", "src/**/y.csv", "**/data/**", "build/", "!src/build/", "!src/build/b.py", "a?.py"),
    *(
        "[ab].py",
        "[!a].py",
        "a\\ \\[1\\].py",
        "\\#c.py",
        "\\!d.py",
        "# a.py",
        "",
        "x  ",
        "*",
        "!*.py",
    ),
    *("!*/", "a*", "src/d*/", "[z-a]x", "src/data/deep/", "*/data", "/*", "!/src", "doc/**/z.md"),
]


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> Path:
    """Return a repository with the names, and nothing ignored."""
    root: Path = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", root], check=True)  # noqa: S603, S607 -- this machine's
    for name in NAMES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def ours(lines: list[str]) -> set[str]:
    """Return what stays in the folder, as the walk goes: nothing below what is left out."""
    known = [*patterns(lines, "git")]
    left = set()
    for name in NAMES:
        parts = name.split("/")
        for depth in range(1, len(parts) + 1):
            found = decision("/".join(parts[:depth]), known, is_folder=depth < len(parts))
            if found is not None and found.leaves_out:
                left.add(name)
                break
    return left


@settings(deadline=None)  # git is a process of its own
@given(st.lists(st.sampled_from(LINES), min_size=1, max_size=5))
def test_patterns_mean_what_they_mean_to_git(repository, lines):
    """Of any few lines together, the last that matches decides."""
    (repository / ".gitignore").write_text("\n".join(lines) + "\n")
    answer = subprocess.run(
        ["git", "check-ignore", "--no-index", "-z", "--stdin"],  # noqa: S607 -- this machine's
        cwd=repository,
        input="\0".join(NAMES),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ours(lines) == {each for each in answer.stdout.split("\0") if each}


def test_a_repository_s_patterns_hold_in_a_folder_of_it(tmp_path):
    """Those above the folder too, and those of the folder are its own."""
    code = tmp_path / "team" / "src"
    (code / "lib").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("/team/src/big.txt\n/lib\n*.tmp\n")
    (code / ".gitignore").write_text("/local.py\n")
    for name in ("train.py", "big.txt", "local.py", "x.tmp", "lib/local.py", "w.bin", ".env"):
        (code / name).touch()
    (code / "large.txt").write_bytes(b"x" * (2**20 + 1))
    (code / "venv-of-mine").mkdir()
    (code / "venv-of-mine" / "pyvenv.cfg").touch()
    read = read_folder(code, ["!w.bin"])
    assert sorted(read.files) == [".gitignore", "lib/local.py", "train.py", "w.bin"]
    assert read.left == {
        ".env": "a secret",
        "big.txt": ".gitignore",
        "large.txt": "above 1 MiB",
        "local.py": ".gitignore",
        "venv-of-mine/": "junk",
        "x.tmp": ".gitignore",
    }
