"""The set-up Job's script where teams share a file system: each has a folder of its own user."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.charts.shared_machine import (
    NAMES,
    OTHERS,
    PODS,
    Entry,
    Machine,
    entries,
    machine,
    traced,
)

__all__ = ["machine", "traced"]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")

_TEAMS = (("nlp", None), ("vision", None))
_FIRST = (("nlp", "megatron-workshop"), ("vision", None))
NLP, VISION = 36589, 53348
"""As docs/teams.md makes them of the names; files keep them for good."""


def _as(user: int, machine: Machine, command: str) -> int:
    """Run a command below the mount as an ordinary user, and return its exit code."""
    words = (
        "setpriv",
        f"--reuid={user}",
        f"--regid={user}",
        "--clear-groups",
        "--bounding-set=-all",
    )
    done = subprocess.run(  # noqa: S603 -- the test's own words
        [*words, "sh", "-euc", command], check=False, capture_output=True, cwd=machine.mount
    )
    return done.returncode


def _team(user: int) -> dict[str, Entry]:
    return {".": (user, user, 0o770), **dict.fromkeys(NAMES, (user, user, 0o770))}


@pytest.mark.parametrize("start", ["first", "second"])
def test_each_team_gets_a_folder_of_its_own_user(machine, start):
    """Below one of root's, where no team can put another's aside."""
    new = machine(existing=False, teams=_TEAMS)
    for _ in range(1 + (start == "second")):
        assert new.run() == (0, "")
    assert entries(new.mount / "teams" / "nlp") == _team(NLP)
    assert entries(new.mount / "teams" / "vision") == _team(VISION)
    assert entries(new.mount)["teams"] == (0, 0, 0o770)


def test_no_team_reads_changes_or_moves_what_is_anothers(machine, tmp_path):
    """As the numbers that its pods have, the one that mounts the whole file system included."""
    tmp_path.chmod(0o755)
    for each in tmp_path.parents:
        if each.stat().st_uid == os.geteuid() and each != Path("/"):
            each.chmod(each.stat().st_mode | 0o011)
    new = machine(existing=False, teams=_FIRST)
    assert new.run() == (0, "")
    secret = new.mount / "teams" / "vision" / "data" / "secret"
    secret.write_text("x")
    os.chown(secret, VISION, VISION)
    (new.mount / "data" / "own").write_text("x")
    os.chown(new.mount / "data" / "own", PODS, PODS)
    for attempt in (
        "cat teams/vision/data/secret",
        "ls teams",
        "ls teams/vision",
        "touch teams/vision/data/more",
        "rm teams/vision/data/secret",
        "mv teams elsewhere",
        "mkdir teams/other",
        "chmod 777 .",
    ):
        assert _as(PODS, new, attempt) != 0, attempt
    assert _as(PODS, new, "cat data/own && mkdir more && mv more others && rmdir others") == 0
    for attempt in ("cat data/own", "ls data", "ls .", "touch x"):
        assert _as(VISION, new, attempt) != 0, attempt
    inside = Machine(new.mount / "teams" / "vision", new.tools)
    assert secret.read_text() == "x"
    # Its pods mount the folder itself, so that nothing above it has to let them through.
    new.mount.chmod(0o1771)
    (new.mount / "teams").chmod(0o771)
    assert _as(VISION, inside, "cat data/secret && mkdir new && rmdir new") == 0


def test_a_cluster_that_gets_teams_keeps_its_files_where_they_are(machine):
    """The first team has the platform's namespace; of its files none gets another owner."""
    old = machine(PODS, 0o770, existing=False, teams=_FIRST)
    for name in NAMES:
        old.make(name, PODS, 0o770)
    old.make("checkpoints/run", PODS, 0o700)
    old.make("homes", OTHERS, 0o755)
    wanted = {**entries(old.mount), ".": (0, PODS, 0o1770)}
    for _ in range(2):
        assert old.run() == (0, "")
        assert entries(old.mount).items() >= wanted.items()


def test_a_folder_of_another_user_where_a_teams_would_be_is_left_alone(machine):
    """A person must look: it may hold somebody's data."""
    new = machine(existing=False, teams=_TEAMS)
    new.make("teams")
    new.make("teams/vision", OTHERS)
    code, said = new.run()
    assert code == 4
    assert said.startswith("/shared/teams/vision belongs to 2000:2000 with mode 755")
    assert not (new.mount / "teams" / "nlp").exists()
