"""A thousand nodes and two hundred jobs of three teams, ten of them real, in Kueue's queues."""

import logging
import random
import re
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from megatron_eks.catalog import kueue
from megatron_eks.catalog.workloads import WORKLOADS
from megatron_eks.kubernetes.client import Object, wait_for
from megatron_eks.kubernetes.connection import UnreachableError
from megatron_eks.ops.jobs import queues
from megatron_eks.ops.jobs.queues import Queues
from megatron_eks.ops.kube import jobs as live
from megatron_eks.plan.cluster.platform import TRAINING_PRIORITY, VALIDATION_PRIORITY
from megatron_eks.project import ROOT
from tests.annex.thousand import GPUS, KINDS, TEAMS, Crowd, Wish, write

pytestmark = [
    pytest.mark.control_plane,
    pytest.mark.programs,
    pytest.mark.long,
    pytest.mark.timeout(3600),
]

_LOG = logging.getLogger(__name__)

SIZES = (400, 400, 200)
JOBS, REAL_JOBS = 200, 10
_STEPS, _MIDDLE = 40, 20
# On a busy machine the last of a job's pods starts more than a minute after the first.
_LIVES = 100, 140
_SECONDS = 1800
_POLL_SECONDS = 5
# How long a team may wait for what is its own: pods that give their place up have a grace.
_OWED_SECONDS = 300
_LOSS = re.compile(r"^step (\d+)/\d+, loss: (\S+)$", re.MULTILINE)
# A place that is lost in the middle is lost between two checkpoints.
_HALF_WAY = f"""\
        while step == {_MIDDLE} and not (options.directory / "go").exists():
            time.sleep(0.2)
        torch.manual_seed(1000 * step + rank)
        batch ="""


def _script() -> str:
    """Return the example's script: each step is what its number says, and one waits for a file."""
    text = (ROOT / "examples/own-script/jobs/ddp/train.py").read_text()
    for old, new in (
        ("import os\n", "import os\nimport time\n"),
        ("    torch.manual_seed(1000 * first + rank)\n", ""),
        ("        batch =", _HALF_WAY),
        ("default=200", f"default={_STEPS}"),
        ("default=50", f"default={_MIDDLE // 2}"),
        (" and step % 10 == 0", ""),
        (":.4f", ":.8f"),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def crowd(programs, tmp_path_factory) -> Iterator[Crowd]:
    """Start the cluster; it is stopped before other tests go on."""
    folder = tmp_path_factory.mktemp("crowd")
    file = write(folder / "files", SIZES, {"train.py": _script()}, REAL_JOBS)
    found = Crowd(programs, file, folder / "cluster")
    try:
        found.start()
        yield found
    finally:
        found.plane.stop()


def _filling(name: str, *, queued: bool) -> list[Wish]:
    """Return jobs that together take each node once."""
    chance, found = random.Random(1), []  # noqa: S311 -- no secret
    for pool, size in enumerate(SIZES):
        counts = [2] * (JOBS * size // sum(SIZES))
        for _ in range(size - sum(counts)):
            counts[chance.randrange(len(counts))] += 1
        for number, count in enumerate(counts):
            who = f"{name}-{pool}-{number}", chance.choice(TEAMS), chance.choice(KINDS)
            found.append(Wish(*who, pool, count, chance.randint(*_LIVES), queued=queued))
    return found


def test_admission_adds_little_to_the_time_of_all(crowd):
    """The same jobs, which have room for all, without queues and with them, told side by side."""
    for queued in (False, True):
        rendered = crowd.render(_filling(f"fill{'q' * queued}", queued=queued))
        begun = time.monotonic()
        crowd.apply(rendered)
        # Pods of a PyTorchJob may be gone before the last of all starts.
        runs = lambda: crowd.pods() == (sum(SIZES), 0) or all(_ends(crowd).values())  # noqa: E731
        wait_for("all pods", runs, _SECONDS, pause=1)
        started = time.monotonic() - begun
        wait_for("all ends", lambda: all(_ends(crowd).values()), _SECONDS, pause=1)
        said = "%d jobs all ran after %.1f s and had ended after %.1f s, queued: %s"
        _LOG.info(said, JOBS, started, time.monotonic() - begun, queued)
        crowd.delete(rendered)
    # Else Kueue places the ranks of a job in any order.
    log = (crowd.plane.folder / "kueue-controller.log").read_text()
    assert "failed to read rank information" not in log


def _ends(crowd: Crowd) -> dict[str, str]:
    """Return how the jobs ended."""
    return {job.name: job.ended for team in TEAMS for job in live.everything(crowd.client, team)}


class _Shares:
    """What teams have of pools, and how long one waits for what is its own."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = sizes
        self._owed: dict[tuple[str, str], float] = {}
        self.longest, self.lent = 0.0, 0

    def look(self, now: Queues) -> None:
        """Judge one moment."""
        shares = {(each.team, each.pool): each for each in now.shares}
        for pool, size in self._sizes.items():
            used = [each.used for each in now.shares if each.pool == pool]
            assert sum(used) <= size, f"{pool} is given away twice"
        self.lent = max(self.lent, sum(each.lent for each in now.shares))
        owed = {
            (each.team, each.pool)
            for each in now.waiting
            if shares[each.team, each.pool].used + each.gpus <= shares[each.team, each.pool].gpus
        }
        self._owed = {each: self._owed.get(each, time.monotonic()) for each in owed}
        waits = [time.monotonic() - since for since in self._owed.values()]
        self.longest = max(self.longest, *waits, 0.0)


class _Trained:
    """Jobs that really train; each is to lose its place once, half way."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self.jobs = crowd.render_real()
        self.takers: dict[str, list[Object]] = {}
        self.evicted: set[str] = set()
        crowd.apply(self.jobs)

    def step(self, now: Queues) -> None:
        """Take the place of those that have saved, and let go on who has lost it."""
        waiting, there = {each.job for each in now.waiting}, {each.job for each in now.entries}
        saved = {name for name in self.jobs if (self.saved(name) / "step-10" / "complete").exists()}
        for name in (saved & waiting) - self.evicted:
            self.evicted.add(name)
            (self.saved(name) / "go").touch()
        left = self.jobs.keys() - self.evicted
        # The two nodes have network cards for four of these jobs.
        if left and len(saved & left) >= min(4, len(left)) and not there & self.takers.keys():
            # Its team's own nodes, which the others have borrowed.
            taker = Wish(f"takes-{len(self.takers)}", "vision", "job", len(SIZES), 2, 10)
            rendered = self._crowd.render([taker])
            self.takers |= rendered
            self._crowd.apply(rendered)

    def saved(self, name: str) -> Path:
        """Return a job's checkpoints."""
        return self._folder(name) / "checkpoints" / name

    def curves(self, name: str) -> list[dict[int, float]]:
        """Return the losses of each of a job's starts."""
        files = sorted((self._folder(name) / "logs" / name).glob("*/rank-00000.log"))
        return [{int(n): float(loss) for n, loss in _LOSS.findall(e.read_text())} for e in files]

    def _folder(self, name: str) -> Path:
        team = self.jobs[name][0]["metadata"]["namespace"]
        (found,) = self._crowd.fleet.shared.glob(f"*/teams/{team}")
        return found


def _expected(folder: Path) -> dict[int, float]:
    """Train without an interruption, and return the losses."""
    (folder / "saved").mkdir()
    (folder / "saved" / "go").touch()
    (folder / "train.py").write_text(_script())
    torchrun = (ROOT / ".venv-programs/bin/python", "-m", "torch.distributed.run")
    words = ("--standalone", "--nproc-per-node=2", "train.py", "--directory=saved")
    done = subprocess.run(  # noqa: S603 -- our own command
        [*torchrun, *words], cwd=folder, capture_output=True, text=True, check=True
    )
    found = {int(number): float(loss) for number, loss in _LOSS.findall(done.stdout)}
    assert list(found) == list(range(1, _STEPS + 1))
    return found


def _wishes(seed: int, count: int) -> list[Wish]:
    """Return jobs of all teams, kinds, classes and sizes for twice the nodes that there are."""
    chance = random.Random(seed)  # noqa: S311 -- no secret
    most = 4 * sum(SIZES) // JOBS - 2
    return [
        Wish(
            f"mixed{seed}-{number}",
            chance.choice(TEAMS),
            chance.choice(KINDS),
            chance.choices(range(len(SIZES)), SIZES)[0],
            chance.randint(2, most),
            chance.randint(*_LIVES),
            chance.choice((TRAINING_PRIORITY, VALIDATION_PRIORITY)),
        )
        for number in range(count)
    ]


@pytest.mark.parametrize(("seed", "real"), [(1, REAL_JOBS), (2, 0)])
def test_jobs_of_three_teams(crowd, tmp_path, seed, real):
    """No deadlock, none half admitted, shares kept, nothing left; real ones lose only time."""
    wishes = _wishes(seed, JOBS - real)
    rendered = crowd.render(wishes)
    pools = crowd.project.cluster.pools
    shares = _Shares({pool.name: GPUS * pool.max_nodes for pool in pools})
    crowd.apply(rendered)
    trained = _Trained(crowd) if real else None
    begun = time.monotonic()

    def done() -> bool:
        try:
            now = queues.read(crowd.client)
        except UnreachableError:
            # A machine with as much to do as this one may need more than a minute.
            return False
        shares.look(now)
        if trained:
            trained.step(now)
        return not now.entries

    wait_for("the end of all jobs", done, _SECONDS, pause=_POLL_SECONDS)
    ends = _ends(crowd)
    everything = rendered | (trained.jobs | trained.takers if trained else {})
    assert ends == dict.fromkeys(everything, "Succeeded")
    evicted = _evicted(crowd)
    _LOG.info(
        "%d jobs ended after %.0f s; %d lost their place; at most %d GPUs were lent; "
        "a team waited at most %.0f s for its own",
        *(len(ends), time.monotonic() - begun, len(evicted), shares.lent, shares.longest),
    )
    assert evicted & rendered.keys()
    assert shares.lent
    assert shares.longest < _OWED_SECONDS
    _ran_together(crowd, [each for each in wishes if each.name not in evicted])
    if trained:
        assert trained.jobs.keys() <= evicted
        expected = _expected(tmp_path)
        for name in trained.jobs:
            curves = trained.curves(name)
            assert len(curves) > 1
            assert {step for each in curves for step in each} == expected.keys()
            for each in curves:
                assert each == pytest.approx({step: expected[step] for step in each}, abs=1e-6)
    crowd.delete(everything)


def _evicted(crowd: Crowd) -> set[str]:
    """Return the jobs that have lost a place."""
    return {
        each["metadata"]["ownerReferences"][0]["name"]
        for each in crowd.client.list(kueue.API_VERSION, "Workload")
        if each.get("status", {}).get("schedulingStats", {}).get("evictions")
    }


def _ran_together(crowd: Crowd, wishes: Iterable[Wish]) -> None:
    """Judge that all pods of a job had a node at one moment, whenever KWOK says that they run."""
    times: dict[str, list[tuple[str, str]]] = {}
    for team in TEAMS:
        for pod in crowd.client.list("v1", "Pod", team, fields="status.phase=Succeeded"):
            labels, status = pod["metadata"]["labels"], pod["status"]
            found = [each.job_label for each in WORKLOADS.values() if each.job_label in labels]
            if found:
                end = status["containerStatuses"][0]["state"]["terminated"]["finishedAt"]
                (placed,) = (e for e in status["conditions"] if e["type"] == "PodScheduled")
                times.setdefault(labels[found[0]], []).append((placed["lastTransitionTime"], end))
    for each in wishes:
        placed_at, ends = zip(*times[each.name], strict=True)
        # Workers that still run when the master has ended are deleted.
        assert len(placed_at) == each.nodes or each.kind == "pytorchjob", each.name
        assert max(placed_at) <= min(ends), f"{each.name} ran in parts: {times[each.name]}"
