"""A demo that fails says why at once, and leaves what its jobs wrote."""

import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from megatron_eks.demo import __main__ as entry
from megatron_eks.demo.place import DemoError, Place
from megatron_eks.demo.story import Story

JOB = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "demo-megatron", "namespace": "jobs"},
}


@pytest.fixture
def place(tmp_path, monkeypatch) -> Iterator[Place]:
    """Return the place of a demo in a cache of its own; what a demo changes is put back."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    handlers = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    yield Place()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
def test_no_wait_outlives_its_job(place, end):
    """What a job that ended will never do is not waited for."""
    condition = {"type": end, "status": "True"}
    place.client = SimpleNamespace(get=lambda *_: {"status": {"conditions": [condition]}})
    story = Story(place, print)
    with pytest.raises(DemoError, match=rf"demo-megatron ended \({end}\) before a step"):
        story.while_running(JOB, "a step", lambda: None, 24 * 3600)


def test_a_job_without_a_status_yet_is_waited_for(place):
    """The operator writes it later."""
    place.client = SimpleNamespace(get=lambda *_: {})
    story = Story(place, print)
    answers = iter([None] * 8 + ["step"])
    assert story.while_running(JOB, "a step", lambda: next(answers), 60) == "step"


@pytest.mark.parametrize("words", [[], ["--keep"]])
def test_a_failed_demo_leaves_its_logs(place, monkeypatch, capsys, words):
    """And says where they are; the next one begins with an empty folder."""

    def fail(story: Story) -> None:
        Path(story.place.folder).mkdir(parents=True)
        (story.place.folder / "cdk-deploy.log").write_text("denied")
        raise DemoError("cdk deploy failed (1)\ndenied")

    monkeypatch.setattr(Story, "open_account", fail)
    assert entry.main(words) == 1
    said = capsys.readouterr().err
    assert "cdk deploy failed (1)\ndenied" in said
    assert f"\n  {place.folder}\nTry again: make demo" in said
    assert [each.name for each in place.folder.iterdir()] == ["cdk-deploy.log"]
