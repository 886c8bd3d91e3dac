"""A running cluster goes from PyTorchJobs to JobSets and back, as docs/workloads.md says it."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import yaml

from megatron_eks.kubernetes.client import Object, wait_for
from megatron_eks.ops.kube.jobs import RunningJob, get
from megatron_eks.synthesis import synthesise_manifests
from tests import command
from tests.annex.kubelet.test_own_programs import write
from tests.annex.kubernetes.test_processes import connected
from tests.annex.rehearsal import rehearsal_in

pytestmark = [pytest.mark.control_plane, pytest.mark.programs, pytest.mark.long]

_NAMESPACE = "megatron-workshop"
_SECONDS = 240


class Place:
    """A project of two jobs, and the local cluster that it is for."""

    def __init__(self, folder: Path, cache: Path, up: Object) -> None:
        """Keep where they are."""
        self._folder, self._shared = folder, cache / "local" / "shared"
        self.client = connected(Path(up["kubeconfig"]))
        self._env = {**os.environ, **up["environment"], "XDG_CACHE_HOME": str(cache.parent)}

    def meks(self, *words: str, code: int = 0) -> str:
        """Run a command in the project, and return what it said."""
        done = command.meks(*words, cwd=self._folder, env=self._env)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    def change(self, file: str, key: str, workload: str) -> None:
        """Write what runs the ranks into a file."""
        path = self._folder / file
        value = yaml.safe_load(path.read_text())
        value[key] = {"workload": workload}
        path.write_text(yaml.safe_dump(value))

    def apply(self) -> str:
        """Synthesise and apply the platform."""
        synthesise_manifests(self._folder / "cluster.yaml", self._folder / "dist")
        return self.meks("apply", "--preview", "--yes")

    def job(self, name: str) -> RunningJob:
        """Return a job as it is now."""
        return get(self.client, _NAMESPACE, name)

    def steps(self, name: str) -> list[int]:
        """Return where its newest start began, and the steps that it has told of."""
        found = sorted(self._shared.glob(f"*/logs/{name}/*/rank-00000.log"))
        text = found[-1].read_text() if found else ""
        return [int(each) for each in re.findall(r"(?:starts at |^)step (\d+)", text, re.MULTILINE)]

    def wait_for_steps(self, name: str, after: int) -> list[int]:
        """Return such steps of a start that began after a step, once there are some."""

        def found() -> list[int]:
            steps = self.steps(name)
            return steps if len(steps) > 1 and steps[0] > after else []

        steps: list[int] = wait_for(f"steps of {name}", found, _SECONDS)
        return steps


@pytest.fixture
def place(programs, tmp_path):
    """Run `meks local up --nodes 2` for a project whose two jobs step."""
    folder = tmp_path / "project"
    folder.mkdir()
    cache, local = rehearsal_in(tmp_path, programs)
    write(folder, "stays", "--steps=1000000", "--save-every=20")
    job = yaml.safe_load((folder / "jobs" / "own.yaml").read_text())
    text = json.dumps(job).replace("stays", "moves")
    (folder / "jobs" / "own.yaml").rename(folder / "jobs" / "stays.yaml")
    (folder / "jobs" / "moves.yaml").write_text(text)
    up = local("up", "--nodes", "2", "-o", "json", CLUSTER_CONFIG=str(folder / "cluster.yaml"))
    try:
        assert up.returncode == 0, up.stderr
        found = Place(folder, cache, json.loads(up.stdout))
        for name in ("stays", "moves"):
            found.meks("submit", name, "--preview")
        yield found
        assert local("status").returncode == 0
        found.client.close()
    finally:
        local("down", "--yes")
        shutil.rmtree(cache / "local", ignore_errors=True)


def test_a_running_cluster_moves_and_loses_no_job(place):
    """Jobs go on under the old kind, new ones are of the new kind, and one moves with its steps."""
    stepped = {name: place.wait_for_steps(name, -1)[-1] for name in ("stays", "moves")}
    before = {name: place.job(name) for name in stepped}
    assert {each.kind for each in before.values()} == {"PyTorchJob"}

    place.change("cluster.yaml", "platform", "jobset")
    said = place.apply()
    assert "create Namespace jobset-system" in said
    assert "the platform is ready" in said
    for name, job in before.items():
        now = place.job(name)
        assert (now.uid, now.restarts) == (job.uid, 0)
        assert place.steps(name)[-1] > stepped[name]

    said = place.meks("submit", "stays", "--preview", code=1)
    assert "stays is there already" in said
    place.change("jobs/stays.yaml", "runtime", "pytorchjob")
    place.meks("submit", "stays", "--preview")
    assert place.job("stays").uid == before["stays"].uid

    place.meks("cancel", "moves", "--yes")
    reached = place.steps("moves")[-1]
    place.meks("submit", "moves", "--preview")
    assert place.job("moves").kind == "JobSet"
    # It saves every 20 steps, and is perhaps not through with the last.
    newest = reached // 20 * 20
    assert place.wait_for_steps("moves", 0)[0] in {newest - 20, newest}

    for name in before:
        place.meks("cancel", name, "--yes")
    place.change("cluster.yaml", "platform", "pytorchjob")
    assert "remove Service jobset-system/jobset-webhook-service" in place.apply()
    assert place.client.serves("jobset.x-k8s.io/v1alpha2", "JobSet")
    place.meks("submit", "moves", "--preview")
    assert place.job("moves").kind == "PyTorchJob"
