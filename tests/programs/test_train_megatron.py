"""The start of Megatron: what stops it, what is repaired, and who has the process then."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from megatron_eks.programs.start import preconditions
from tests.programs import saved
from tests.programs.megatron_files import (
    TRACKER,
    Job,
    errors,
    megatrons_line,
    summary,
    write_checkpoint,
    write_data_set,
)

SET_MEGATRON_LM = "set MEGATRON_LM to a checkout of Megatron-LM"
NO_TOKENIZER = "none of tokenizer.json, tokenizer.model, vocab.json, vocab.txt is in it"
CONVERT = "convert the base weights, or correct --pretrained-checkpoint"


def test_good_job_starts(job):
    """Megatron gets its arguments as they stand, after one JSON line of what was checked."""
    done = job.run("--mock", "a b", "--end-with", "0")
    assert (done.returncode, errors(done.stderr)) == (0, [])
    assert done.stdout.splitlines()[0].startswith('{"program"')
    assert megatrons_line(done.stdout)["words"] == job.words("--mock", "a b", "--end-with", "0")
    assert summary(done.stdout) == {
        "program": "train_megatron",
        "status": "starting",
        "rank": 0,
        "data": [{"prefix": str(job.data), "documents": 2, "tokens": 5, "sequences": 2}],
        "start": "random weights",
        "keep_last": 2,
        "findings": [],
    }


def test_a_tracker_that_is_fed_from_the_log_has_to_be_there(job):
    """Megatron-LM has no option for MLflow, so only its variable says that somebody wants it."""
    done = job.run(environment=job.environment(MLFLOW_EXPERIMENT_NAME="e"))
    assert done.returncode == 4
    (said,) = errors(done.stderr)
    assert "this image has no package mlflow" in said


@pytest.mark.parametrize("code", [1, 7])
def test_exit_code_is_megatrons(job, code):
    """The operator and torchrun see what Megatron ended with."""
    assert job.run("--end-with", str(code)).returncode == code


def test_error_ends_the_process(job):
    """Though a worker ignores SIGTERM, as Megatron's data loaders do, for which Python waits."""
    done = job.run("--fail-with-worker")
    assert done.returncode == 1
    assert done.stderr.endswith("RuntimeError: a collective failed\n")


def test_megatron_takes_the_process_over(job):
    """SIGTERM of torchrun's group reaches Megatron, whose last words are still read."""
    process = job.popen("--wait-for-signal")
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]
    assert megatrons_line("".join(lines))["pid"] == process.pid
    os.killpg(process.pid, signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert out == "saved after SIGTERM\n"


def test_split_without_sequences_is_refused(job):
    """Before Megatron counts the epochs of an empty data set for ever."""
    done = job.run("--split", "98,2,0")
    assert done.returncode == 4
    (said,) = errors(done.stderr)
    assert "--split 98,2,0 leaves nothing for validation: 2 of 100 shares of 2 sequences" in said


@pytest.mark.parametrize(
    ("own", "found"),
    [
        (["--keep-last", "0"], "argument --keep-last: 0 is less than 1"),
        (["--keep", "3", "--unknown"], "unrecognized arguments: --unknown"),
    ],
)
def test_wrong_options_exit_with_2(job, own, found):
    """A wrong command line is not a failed check."""
    done = job.run(own=own)
    assert done.returncode == 2
    assert found in done.stderr


def test_all_problems_are_said_at_once(job, tmp_path):
    """Nobody should wait for eight GPUs five times to learn of five mistakes."""
    (job.megatron / "pretrain_gpt.py").unlink()
    (job.tokenizer / "tokenizer.json").unlink()
    Path(f"{job.data}.bin").unlink()
    (tmp_path / "file").write_text("")
    base = tmp_path / "base"
    done = job.run(
        *("--save", str(tmp_path / "file" / "save"), "--load", str(job.save)),
        *("--pretrained-checkpoint", str(base)),
    )
    assert done.returncode == 4
    writer = f"give user {os.getuid()} the right to write, or choose another directory"
    assert [line.removeprefix("error ").partition(" - ") for line in errors(done.stderr)] == [
        (f"{job.megatron}/pretrain_gpt.py: no such file", " - ", SET_MEGATRON_LM),
        (f"{job.data}: no file {job.data}.bin", " - ", "prepare the data, or correct the prefix"),
        (f"{job.tokenizer}: {NO_TOKENIZER}", " - ", "download the tokenizer again"),
        (f"{tmp_path}/file/save: cannot be written: Not a directory", " - ", writer),
        (f"{base}: no base weights: no {TRACKER} in it", " - ", CONVERT),
    ]
    told = summary(done.stdout)
    assert (told["status"], told["findings"]) == ("refused", errors(done.stderr))


def test_weight_in_the_wrong_place_exits_with_2(job):
    """Two prefixes without weights are a wrong command line."""
    done = job.run("--data-path", str(job.data), str(job.data))
    assert done.returncode == 2
    (line,) = errors(done.stderr)
    assert line.startswith(f"error --data-path: {str(job.data)!r} stands where a weight belongs - ")


def test_blend_and_splits_are_checked(job, tmp_path):
    """Every data set of a mixture counts, and those of the other options too."""
    other = write_data_set(tmp_path / "other")
    done = job.run(
        *("--data-path", "0.5", str(job.data), "0.5", str(other)),
        *("--valid-data-path", str(tmp_path / "absent")),
    )
    assert done.returncode == 4
    data = summary(done.stdout)["data"]
    assert isinstance(data, list)
    assert [entry["prefix"] for entry in data] == [str(job.data), str(other)]
    assert len(errors(done.stderr)) == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--tokenizer-model", "/absent"), 4),
        (("--tokenizer-model", "meta-llama/Llama-3.1-8B"), 0),
        (("--tokenizer-type", "TikTokenizer", "--tokenizer-model", "/absent"), 4),
        (("--tokenizer-type", "TikTokenizer"), 0),
    ],
)
def test_tokenizer_has_to_be_there(job, words, code):
    """A directory for Hugging Face's, any path for the others; a name is fetched by Megatron."""
    assert job.run(*words).returncode == code


def test_read_only_save_directory_is_refused(job):
    """Root may write anywhere, so the kernel's own read-only file system stands for it."""
    done = job.run("--save", "/proc/checkpoints", "--load", "/proc/checkpoints")
    assert done.returncode == 4
    assert "error /proc/checkpoints: cannot be written: " in done.stderr


def check_space(job: Job, base: Path | None, free: int, monkeypatch) -> list[str]:
    """Check for room on a file system with so many bytes free."""
    usage = shutil.disk_usage(job.root)._replace(free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    return [str(finding) for finding in preconditions.check_space(job.save, base, "torch_dist")]


def test_little_space_is_a_warning_with_numbers(job, monkeypatch):
    """Two more checkpoints of the present size should fit."""
    directory = write_checkpoint(job.save, 500)
    with (directory / "__1_0.distcp").open("wb") as file:
        file.truncate(112 * 10**9)  # a sparse file
    assert check_space(job, None, 225 * 10**9, monkeypatch) == []
    (found,) = check_space(job, None, 130 * 10**9, monkeypatch)
    numbers = "130.0 GB free, and two checkpoints take about 224.0 GB"
    assert found.startswith(f"warning {job.save}: {numbers} - remove what is not needed")


def test_first_checkpoints_size_comes_from_the_base_weights(job, tmp_path, monkeypatch):
    """Before the first save, seven times the 16-bit base weights is what a checkpoint takes."""
    job.save.mkdir()
    with (write_checkpoint(tmp_path / "base", 0) / "__1_0.distcp").open("wb") as file:
        file.truncate(16 * 10**9)
    (tmp_path / "base" / TRACKER).write_text("0")
    (found,) = check_space(job, tmp_path / "base", 10**9, monkeypatch)
    assert "two checkpoints take about 224.0 GB" in found


def test_only_the_first_process_of_a_node_speaks(job):
    """Eight ranks of a node see the same; one JSON line is enough."""
    done = job.run(environment=job.environment(RANK="9", LOCAL_RANK="1", WORLD_SIZE="16"))
    assert done.returncode == 0
    assert '{"program"' not in done.stdout


def test_old_checkpoints_go_while_megatron_runs(job):
    """Retention runs beside the training from its first minute."""
    for iteration in (500, 1000, 1500):
        saved.seal(write_checkpoint(job.save, iteration))
    (job.save / TRACKER).write_text("1500")
    done = job.run("--until-gone", str(job.save / "iter_0000500"))
    assert done.returncode == 0
    left = sorted(path.name for path in job.save.glob("iter_*"))
    assert left == ["iter_0001000", "iter_0001500"]


def test_directories_of_the_environment_are_made(job, tmp_path):
    """NCCL and torch write nothing, without a word, where a directory is missing."""
    nccl, triton, flight = tmp_path / "a" / "nccl", tmp_path / "b" / "triton", tmp_path / "c"
    environment = job.environment(
        NCCL_DEBUG_FILE=f"{nccl}/%h.%p.log",
        TRITON_CACHE_DIR=str(triton),
        TORCH_NCCL_DEBUG_INFO_TEMP_FILE=f"{flight}/flight-recorder-",
    )
    assert job.run(environment=environment).returncode == 0
    assert nccl.is_dir()
    assert triton.is_dir()
    assert flight.is_dir()
