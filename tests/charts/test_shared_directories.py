"""The set-up Job's script, run as root on file systems that others use, and that set traps."""

import os
import stat
import subprocess

import pytest

from tests.charts.shared_machine import MADE, NAMES, OTHERS, PODS, entries, machine, traced

__all__ = ["machine", "traced"]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.mark.parametrize("start", ["first", "second"])
def test_of_a_new_file_system_root_and_directories_become_the_pods(machine, start):
    """A second start changes nothing, modes that people have chosen included."""
    new = machine(existing=False)
    assert new.run() == (0, "")
    wanted = {".": (PODS, PODS, 0o770), **MADE}
    if start == "second":
        new.make("data", PODS, 0o750)
        new.make("data/kept", OTHERS, 0o700)
        wanted |= {"data": (PODS, PODS, 0o750), "data/kept": (OTHERS, OTHERS, 0o700)}
        assert new.run() == (0, "")
    assert entries(new.mount) == wanted


def test_a_cluster_of_an_earlier_release_stays_as_it_is(machine):
    """Its root is the pods' already, and so are its directories."""
    old = machine(PODS, 0o770, existing=False)
    for name in NAMES:
        old.make(name, PODS, 0o770)
    before = entries(old.mount)
    assert old.run() == (0, "")
    assert entries(old.mount) == before


def test_directories_of_data_repositories_become_the_pods(machine):
    """FSx has made them as root; another directory of root's is nobody's to give away."""
    new = machine(existing=False, repositories=("/data/english", "/corpus"))
    for name in ("data", "data/english", "corpus"):
        new.make(name)
    assert new.run() == (0, "")
    found = entries(new.mount)
    assert found["data"] == (PODS, PODS, 0o770)
    assert found["corpus"] == found["data/english"] == (0, 0, 0o755)
    new.make("logs", 0, 0o755)
    code, said = new.run()
    assert code == 4
    assert said.startswith("/shared/logs belongs to 0:0 with mode 755, and stays so: chown 10001")


@pytest.mark.parametrize(
    ("owner", "mode"), [(0, 0o755), (OTHERS, 0o755), (0, 0o1777), (OTHERS, 0o2775), (0, 0o777)]
)
def test_of_an_existing_file_system_no_root_and_no_neighbour_changes(machine, owner, mode):
    """Only what is missing is made, whoever owns the root, and whatever new files there inherit."""
    theirs = machine(owner, mode)
    theirs.make("home", OTHERS, 0o700)
    theirs.make("data", PODS, 0o700)
    (theirs.mount / "data" / "file").touch(0o600)
    before = entries(theirs.mount)
    for _ in range(2):
        assert theirs.run() == (0, "")
        found = entries(theirs.mount)
        assert found.items() >= before.items()
        assert found.keys() == before.keys() | MADE.keys()
        # GNU's chmod leaves the bit by which a directory hands on its group.
        made = {found[name] for name in NAMES if name != "data"}
        assert made <= {(PODS, PODS, 0o770), (PODS, PODS, 0o2770)}


@pytest.mark.parametrize("owner", [0, OTHERS])
def test_what_belongs_to_others_is_named_and_nothing_is_made(machine, owner):
    """With all that is in the way at once, and what to do about it."""
    theirs = machine()
    theirs.make("data", owner, 0o755)
    theirs.make("logs", owner, 0o1777)
    before = entries(theirs.mount)
    code, said = theirs.run()
    assert code == 4
    assert said == (
        f"/shared/data belongs to {owner}:{owner} with mode 755, and stays so: chown 10001:10001 "
        "/shared/data if it is yours, or set storage.lustre.existing.path to a folder of yours\n"
        f"/shared/logs belongs to {owner}:{owner} with mode 1777, and stays so: chown 10001:10001 "
        "/shared/logs if it is yours, or set storage.lustre.existing.path to a folder of yours\n"
    )
    assert entries(theirs.mount) == before


PLANTED = {
    "dangling": "ln -s nowhere data",
    "inside": "ln -s other data",
    "outside": "ln -s ../outside data",
    "to ours": f"mkdir -m 770 ours; chown {PODS}:{PODS} ours; ln -s ours data",
    "round": "ln -s data data",
    "file": "touch data; chmod 600 data",
    "pipe": "mkfifo -m 600 data",
}


@pytest.mark.parametrize("plant", PLANTED)
@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize("owner", [0, PODS])
def test_what_is_no_directory_is_refused_and_nothing_changes(machine, plant, existing, owner):
    """A pod may have put it there: links would turn root's hand on somebody else's files."""
    trapped = machine(owner, 0o770, existing=existing)
    trapped.make("other", 0, 0o700)
    trapped.make("../outside", 0, 0o700)
    subprocess.run(["sh", "-euc", PLANTED[plant]], check=True, cwd=trapped.mount)  # noqa: S603, S607 -- the test's own words
    before = entries(trapped.mount.parent)
    code, said = trapped.run()
    assert code == 4
    kind = "is a link" if (trapped.mount / "data").is_symlink() else "is not a directory"
    assert said.startswith(f"/shared/data {kind}, and stays as it is: put a directory there, ")
    after = entries(trapped.mount.parent)
    if not existing:
        # Which is never made by others: root's own mount.
        before.pop("shared"), after.pop("shared")
    assert after == before


@pytest.mark.parametrize("path", ["nlp", "/teams/nlp", "a/.b/-c"])
def test_a_folder_of_ours_is_made_with_its_parents(machine, path):
    """And the directories in it, so that pods find them below the mount path."""
    theirs = machine(0, 0o755, path=path)
    theirs.make("data", OTHERS)
    before = entries(theirs.mount)
    for _ in range(2):
        assert theirs.run() == (0, "")
        found = entries(theirs.mount)
        assert found.items() >= before.items()
    folder = theirs.mount / path.strip("/")
    assert entries(folder) == {".": (PODS, PODS, 0o770), **MADE}


def test_parents_of_the_folder_may_be_anybodys(machine):
    """And stay theirs; the folder itself must be the pods'."""
    theirs = machine(path="/teams/nlp")
    theirs.make("teams", OTHERS, 0o750)
    assert theirs.run() == (0, "")
    assert entries(theirs.mount)["teams"] == (OTHERS, OTHERS, 0o750)
    theirs.make("teams/nlp", OTHERS)
    code, said = theirs.run()
    assert (code, said.count("\n")) == (4, 1)
    assert said.startswith("/shared/teams/nlp belongs to 2000:2000 with mode 755")


def test_a_link_on_the_way_to_the_folder_is_refused(machine):
    """It would lead into another team's."""
    theirs = machine(path="/teams/nlp")
    theirs.make("other/nlp", PODS, 0o770)
    (theirs.mount / "teams").symlink_to("other")
    before = entries(theirs.mount)
    code, said = theirs.run()
    assert code == 4
    assert said.splitlines()[0].startswith("/shared/teams is a link")
    assert said.splitlines()[1].startswith("/shared/teams/nlp is reached by a link")
    assert entries(theirs.mount) == before


@pytest.mark.parametrize("bait", ["link", "directory"])
@pytest.mark.parametrize("moment", ["mkdir", "stat", "chown"])
@pytest.mark.parametrize("existing", [True, False])
def test_who_swaps_a_directory_in_the_midst_gains_nothing(traced, bait, moment, existing):
    """The owner of the root may rename what is in it at any moment of the Job."""
    hunted = traced(PODS, 0o777, existing=existing)
    other = hunted.make("other", 0, 0o700)
    number = other.stat().st_ino
    plant = "ln -s other data" if bait == "link" else "mv other data"
    swap = (
        f'cd "$cd" && [ ! -e .swapped ] && [ -d data ] && touch .swapped && mv data gone && {plant}'
    )
    hunted.tool(moment, f'"$real" "$@"; code=$?; ({swap}) || true; exit $code')
    hunted.run()
    hunted.run()
    assert (hunted.mount / ".swapped").exists()
    found = other if other.is_dir() else hunted.mount / "data"
    state = found.stat()
    assert (state.st_ino, state.st_uid, stat.S_IMODE(state.st_mode)) == (number, 0, 0o700)


@pytest.mark.parametrize("moment", ["chown", "chmod"])
def test_a_start_that_was_cut_off_is_taken_up_again(traced, moment):
    """Between making a directory and giving it away, say, by the end of its node."""
    theirs = traced()
    theirs.tool(moment, 'kill -9 "$PPID"')
    assert theirs.run()[0] == -9
    assert entries(theirs.mount)["data"][2] == 0o300
    theirs.tool(moment, '"$real" "$@"')
    assert theirs.run() == (0, "")
    assert entries(theirs.mount) == {".": (0, 0, 0o755), **MADE}


def test_directories_that_cannot_be_given_away_fail_the_job(traced):
    """Another start may do better: only what people must see to ends it for good."""
    theirs = traced()
    theirs.tool("chown", "exit 1")
    code, _ = theirs.run()
    assert code == 1
