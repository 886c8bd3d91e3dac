"""Nodes meet in a real etcd through real torchruns, each started as a pod starts it."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from megatron_eks.localcloud.kubernetes.processes import free_port
from tests.go_programs import ETCD, built
from tests.programs.run_program import PROGRAMS, TORCHRUN, run

pytestmark = pytest.mark.programs

_TRAINING = Path(__file__).with_name("meeting.py")
_SECONDS = 90.0


@pytest.fixture(scope="session")
def etcd_program() -> Path:
    """Return etcd of the platform's minor version, built once for each machine."""
    return built(*ETCD)


class Etcd:
    """An etcd that can lose its data."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._program, self._folder = program, folder
        self.address = f"127.0.0.1:{free_port()}"
        self._peer = f"http://127.0.0.1:{free_port()}"
        self.start()

    def start(self) -> None:
        """Start it on an empty folder."""
        shutil.rmtree(self._folder, ignore_errors=True)
        url = f"http://{self.address}"
        words = ["--enable-v2", f"--data-dir={self._folder}", f"--listen-client-urls={url}"]
        words += [f"--advertise-client-urls={url}", f"--listen-peer-urls={self._peer}"]
        self._process = subprocess.Popen(  # noqa: S603
            [self._program, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def keys(self, directory: str) -> dict[str, int]:
        """Return what is in a directory, with the index at which each was made."""
        with urlopen(f"http://{self.address}/v2/keys{directory}") as answer:
            nodes = json.load(answer)["node"].get("nodes", [])
        return {each["key"]: each["createdIndex"] for each in nodes}

    def expire(self, key: str) -> None:
        """Remove a key, as its time to live does."""
        urlopen(Request(f"http://{self.address}/v2/keys{key}", method="DELETE")).close()

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


class Pod:
    """What runs in the container of a node: the program, then torchrun with one rank."""

    def __init__(
        self, folder: Path, name: str, python: Path, etcd: Etcd, *, restarts: int, nodes: str
    ) -> None:
        self._log = folder / f"{name}.log"
        settings = {
            "OMP_NUM_THREADS": "1",
            "PET_MAX_RESTARTS": str(restarts),
            "PET_NNODES": nodes,
            "PET_NPROC_PER_NODE": "1",
            "PET_RDZV_BACKEND": "etcd-v2",
            "PET_RDZV_ENDPOINT": etcd.address,
            "PET_RDZV_ID": "job",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }
        words = [python, "-m", f"{PROGRAMS}.etcd_run_id", TORCHRUN, _TRAINING, folder]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(  # noqa: S603
                list(map(str, words)), stdout=log, stderr=log, env={**os.environ, **settings}
            )

    @property
    def met(self) -> list[str]:
        """Return the run ids under which its rank has met the others, in order."""
        return [words[3] for words in self._met()]

    @property
    def worlds(self) -> list[int]:
        """Return with how many ranks, itself included, it has met."""
        return [int(words[2]) for words in self._met()]

    def _met(self) -> list[list[str]]:
        lines = self._log.read_text().splitlines()
        return [line.split() for line in lines if line.startswith("met ")]

    def wait_for(self, *run_ids: str, worlds: Sequence[int] = ()) -> None:
        """Wait until its rank has met the others under these run ids, or in these numbers."""
        deadline = time.monotonic() + _SECONDS
        while self.worlds != list(worlds) if worlds else self.met != list(run_ids):
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.1)

    def end(self, number: int = signal.SIGKILL) -> None:
        """End all of it, as a lost node does."""
        process = self.process.pid
        ranks = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        self.process.send_signal(number)
        for each in ranks if number == signal.SIGKILL else ():
            os.kill(int(each), signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def etcd(etcd_program: Path, tmp_path: Path) -> Iterator[Etcd]:
    """Return an etcd without data."""
    server = Etcd(etcd_program, tmp_path / "etcd")
    yield server
    server.stop()


@pytest.fixture
def pod(etcd: Etcd, programs_python: Path, tmp_path: Path):
    """Return a function that starts the pod of a node."""
    pods: list[Pod] = []

    def start(name: str, restarts: int = 0, nodes: str = "2:2") -> Pod:
        started = Pod(tmp_path, name, programs_python, etcd, restarts=restarts, nodes=nodes)
        pods.append(started)
        return started

    yield start
    for each in pods:
        if each.process.poll() is None:
            each.end()


def test_a_job_meets_again_after_its_end(pod, tmp_path):
    """Under the next run id: torchrun has closed the first one."""
    for number in (1, 2):
        both = [pod(f"{name}-{number}") for name in "ab"]
        for each in both:
            each.wait_for(f"job.{number}")
        (tmp_path / "end").touch()
        assert [each.process.wait(_SECONDS) for each in both] == [0, 0]
        (tmp_path / "end").unlink()


@pytest.mark.long
def test_what_is_past_is_removed(pod, etcd, tmp_path):
    """Torch never does; a run id whose state has expired is taken again, and its keys are new."""
    both = [pod(name) for name in "ab"]
    for each in both:
        each.wait_for("job.1")
    (tmp_path / "end").touch()
    assert [each.process.wait(_SECONDS) for each in both] == [0, 0]
    (tmp_path / "end").unlink()
    newest = max(etcd.keys("/torch/elastic/store").values())
    etcd.expire("/torch/elastic/rendezvous/job.1")
    for each in [pod(name) for name in "cd"]:
        each.wait_for("job.1")
    assert min(etcd.keys("/torch/elastic/store").values()) > newest


@pytest.mark.long
def test_a_lost_node_is_replaced_where_the_other_waits(pod):
    """The run id is open, so who comes instead meets the agent that lives."""
    lives, lost = pod("a", restarts=3), pod("b", restarts=3)
    lives.wait_for("job.1")
    lost.end()
    came = pod("c", restarts=3)
    came.wait_for("job.1")
    assert lives.met == ["job.1", "job.1"]


@pytest.mark.long
def test_an_elastic_job_goes_on_with_two_of_three(pod):
    """And with three again when another node comes: what is running restarts to take it in."""
    a, b, lost = (pod(name, restarts=3, nodes="2:3") for name in "abc")
    for each in (a, b, lost):
        each.wait_for(worlds=[3])
    lost.end()
    for each in (a, b):
        each.wait_for(worlds=[3, 2])
    pod("d", restarts=3, nodes="2:3").wait_for(worlds=[3])
    for each in (a, b):
        each.wait_for(worlds=[3, 2, 3])


@pytest.mark.long
def test_a_gang_restarts(pod, tmp_path):
    """In its agents while these may; then its pods end, and meet under the next run id."""
    both = [pod(name, restarts=1) for name in "ab"]
    for each in both:
        each.wait_for("job.1")
    (tmp_path / "fail").touch()
    for each in both:
        each.wait_for("job.1", "job.1")
    (tmp_path / "fail").touch()
    assert [each.process.wait(_SECONDS) for each in both] == [1, 1]
    for each in [pod(name) for name in "cd"]:
        each.wait_for("job.2")


@pytest.mark.long
def test_etcd_loses_its_data(pod, etcd):
    """Agents end when it is away, their pods start again, and meet in the empty one."""
    both = [pod(name) for name in "ab"]
    for each in both:
        each.wait_for("job.1")
    etcd.stop()
    assert all(each.process.wait(_SECONDS) for each in both)
    again = [pod(name) for name in "cd"]
    time.sleep(1)
    etcd.start()
    for each in again:
        each.wait_for("job.1")


def test_etcd_that_does_not_answer(programs_python):
    """One line says so, after a time that is bounded."""
    program = (
        "import sys; from megatron_eks.programs import etcd_run_id as it; "
        "it._PATIENCE_SECONDS = 0; sys.exit(it.main(['true']))"
    )
    place = {"PET_RDZV_ENDPOINT": f"127.0.0.1:{free_port()}", "PET_RDZV_ID": "job"}
    done = subprocess.run(  # noqa: S603
        [programs_python, "-c", program],
        env={**os.environ, **place},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 5
    (line,) = [each for each in done.stderr.splitlines() if each.startswith("error")]
    assert line.startswith(f"error etcd at {place['PET_RDZV_ENDPOINT']}: does not answer")


def test_an_image_without_the_client():
    """Of the user's own, perhaps: what is missing is named."""
    ended = run("etcd_run_id", "true")
    assert (ended.code, ended.stderr.count("install python-etcd")) == (4, 1)
