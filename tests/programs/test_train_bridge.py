"""A Megatron-Bridge job starts behind the guards of Megatron."""

import json

import pytest

from tests.programs import saved
from tests.programs.bridge_job import JOB
from tests.programs.megatron_files import write_data_set
from tests.programs.run_program import run


@pytest.fixture
def config(tmp_path):
    """Return the configuration of a job that can start, and its directories."""
    write_data_set(tmp_path / "text_document")
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.json").write_text("{}")
    data = {"prefix": str(tmp_path / "text_document"), "tokenizer": str(tmp_path / "tokenizer")}
    job = {**JOB, "data": data, "checkpoint": {"directory": str(tmp_path / "save")}}
    path = tmp_path / "train_bridge.json"
    path.write_text(json.dumps(job))
    return path


def start(config, **environment):
    """Run the program as rank 0."""
    words = ("--recipe", "llama31_8b_pretrain_config", "--config", config)
    return run("train_bridge", *words, environment=environment)


def test_good_job_comes_as_far_as_the_bridge(config):
    """The test environment has no Megatron-Bridge: exit code 3 and the remedy."""
    done = start(config)
    assert (done.code, done.summary["status"]) == (3, "not found")
    assert done.summary["start"] == "random weights"
    assert "use an image with megatron-bridge" in done.findings[0]


def test_guards_are_those_of_megatron(config, tmp_path):
    """Data, tokenizer and directories are looked at before anything is imported."""
    (tmp_path / "text_document.bin").unlink()
    (tmp_path / "tokenizer" / "tokenizer.json").unlink()
    done = start(config)
    assert done.code == 4
    assert [each.partition(": ")[2].partition(" - ")[0] for each in done.findings] == [
        f"no file {tmp_path}/text_document.bin",
        "none of tokenizer.json, tokenizer.model, vocab.json, vocab.txt is in it",
    ]


def test_train_state_follows_the_tracker(config, tmp_path):
    """Megatron-Bridge reads its own copy first, which a torn or old one would mislead."""
    checkpoint = saved.megatron(tmp_path / "save", 500)
    state = saved.torch_file(b"state of 500")
    (checkpoint / "train_state.pt").write_bytes(state)
    (tmp_path / "save" / "latest_checkpointed_iteration.txt").write_text("to")
    (tmp_path / "save" / "latest_train_state.pt").write_bytes(b"torn")
    done = start(config)
    assert done.code == 3
    assert (tmp_path / "save" / "latest_checkpointed_iteration.txt").read_text() == "500"
    assert (tmp_path / "save" / "latest_train_state.pt").read_bytes() == state
    assert done.summary["start"] == str(checkpoint)


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_configuration_that_cannot_be_read_exits_with_2(tmp_path, text):
    """The file is part of the command line."""
    path = tmp_path / "train_bridge.json"
    if text is not None:
        path.write_text(text)
    done = start(path)
    assert (done.code, done.summary["status"]) == (2, "usage")
