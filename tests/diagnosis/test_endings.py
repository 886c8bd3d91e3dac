"""A run that ended well, what it outlived, and what failed after its last step."""

import pytest

from megatron_eks.diagnosis.codes import LogCode
from megatron_eks.diagnosis.diagnose import diagnose

OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
DONE = "[after training is done] datetime: 2026-11-20 11:00:00"
SAVED = "  successfully saved checkpoint from iteration     400 to /shared/checkpoints/run"
TERMINATED = (
    "W1120 torch/distributed/elastic/agent/server/api.py:704] Received 15 death signal,"
    " shutting down workers"
)


def step(number: int) -> str:
    """Return Megatron's line about a step."""
    return f" [2026-11-20 10:{number // 10:02}:00] iteration {number}/ 400 | lm loss: 2.5E+00 |"


OUTLIVED = [
    OUT_OF_MEMORY,
    "[ 1000.0] NVRM: Xid (PCI:0000:09:00): 79, pid=0, GPU has fallen off the bus.",
    "wandb: WARNING OSError: [Errno 28] No space left on device: './wandb/run.wandb'",
    "WARNING huggingface_hub: 403 Client Error: Forbidden for url: https://huggingface.co/api",
    "WARNING: skipped step, grad norm is NaN (1 skipped iteration, loss scale reduced)",
    "[W socket.cpp:697] [c10d] The client socket has failed to connect to [master]:29500",
    "nvidia-smi: Failed to initialize NVML: Insufficient Permissions",
    "OSError: [Errno 5] Input/output error: '/shared/x'",
]


@pytest.mark.parametrize("line", OUTLIVED)
def test_a_run_that_went_on_was_not_ended(line: str) -> None:
    """By two later steps, and by its own word that it is done."""
    went_on = [step(200), line, step(300), step(400)]
    found = diagnose(went_on)
    assert (found.code, found.ended_well, len(found.cascades)) == (None, False, 1)
    assert "training went on after" in found.cause
    assert found.cascades[0].what.endswith("It did not end the run.")
    for end in ([SAVED, DONE], [SAVED], [DONE, TERMINATED]):
        well = diagnose([*went_on, *end])
        assert (well.code, well.ended_well, well.last_step) == (None, True, 400)
        assert "step 400 of 400" in well.cause


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([OUT_OF_MEMORY, step(400)], LogCode.CUDA_OUT_OF_MEMORY),
        ([step(399), step(400), OUT_OF_MEMORY], LogCode.CUDA_OUT_OF_MEMORY),
        # Megatron evaluates and saves after it says so.
        ([step(400), DONE, "OSError: [Errno 28] No space left on device"], LogCode.DISK_FULL),
        ([step(400), DONE, "ValueError: bad"], LogCode.EXCEPTION),
        # Another start, and its end.
        (
            [SAVED, DONE, " iteration 401/ 800 | lm loss: 2 |", OUT_OF_MEMORY],
            LogCode.CUDA_OUT_OF_MEMORY,
        ),
        # Clocks that differ: the order of the lines is true.
        (
            [*map(step, (397, 398, 399)), f"2026-11-20 10:00:30 [rank3]: {OUT_OF_MEMORY}"],
            LogCode.CUDA_OUT_OF_MEMORY,
        ),
        # Logs of ranks one after the other: nothing tells that the steps came later.
        (
            ["[0] [W1120 08:00:00.0 x.cpp:1] hello", f"[0] {OUT_OF_MEMORY}"]
            + [f"[7] {step(number)}" for number in (398, 399, 400)],
            LogCode.CUDA_OUT_OF_MEMORY,
        ),
    ],
)
def test_what_ended_a_run_is_not_cleared(lines: list[str], code: LogCode) -> None:
    """By an end or by steps of another time."""
    found = diagnose(lines)
    assert (found.code, found.ended_well) == (code, False)


@pytest.mark.parametrize(
    "lines",
    [
        ["[exiting program at iteration 100] datetime: 2026-11-20 10:21:00"],
        [
            "[0] step 3/3 | loss 10.71000 | grad norm 2.100 | 60.10 GiB | 3.100 s",
            '[0] {"program": "train_fsdp", "step": 3, "loss": 10.7, "status": "finished"}',
        ],
        ['{"program": "prepare_data", "status": "done", "findings": ["warning x: disk is full"]}'],
        ["step 3/3 | loss 0.5", "Training completed", "step 3/3 | loss 0.5"],
        ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 231.1"],
        ["{'train_runtime': 812.1, 'train_loss': 1.91, 'epoch': 1.0}"],
        ["pip WARNING: Retrying after 'ReadTimeoutError(\"Read timed out\")'", "#12 DONE 60.3s"],
        ["    Message:  Job finished successfully", "Preempted to accommodate a workload"],
        [
            '[prompt] What does "RuntimeError: CUDA error: device-side assert triggered" mean?',
            "Evaluation finished.",
        ],
        ["Q: A pod shows OOMKilled, exit code 137. Why?", "lm-eval: done, results written to /x"],
        ["Status:  Succeeded", "  Warning  BackOff  9m  kubelet  Back-off pulling image"],
        ["exiting program after 230.1 minutes"],
        ["--> Train done in 3121.4s", "[rank0]:[W1119 x.cpp:1538] Warning: a group was left"],
        ["Skipped 3 documents: JSONDecodeError: Expecting value", "done: 390 documents, 0 failed"],
        ["#9 0.8 ModuleNotFoundError: No module named 'x'", "26.10: digest: sha256:0c1f size: 86"],
        ["#9 61   error: subprocess-exited-with-error", "#20 naming to 1.dkr.example/x:3 done"],
        ["WARNING: line 4: JSONDecodeError: Expecting value -- skipping", "Done! Now finalizing."],
        ["unexpected keys: ['decoder.layers.0._extra_state']", "Conversion successful."],
        [
            "12 documents failed to parse (JSONDecodeError) and were skipped",
            "errors 0  done in 271 s",
        ],
        ["2026-11-15 12:00:31 | Training finished: errors: 0, killed workers: 0"],
        [
            "warning: Skipping file x. Permission denied",
            "2026-11-15 16:20:00 sync finished, 90 files",
        ],
        ["    Message:  jobset completed successfully"],
        ["epoch 0 step 400/400 loss 2.4", "all ranks done", "n:2:9 NCCL INFO Destroy COMPLETE"],
        [
            "Retrying after 'ReadTimeoutError(\"Read timed out\")'",
            "verified 33 files",
            "done, rc=0",
        ],
        ["skipped 2 documents, failed 0", "Done! Wrote /shared/part-04_text_document.bin and .idx"],
        ["WARNING urllib3: Retrying (Retry(total=6)): Read timed out", "exit code: 0"],
        ["test_save.py XFAIL (RuntimeError: PytorchStreamReader failed)", "= 7 passed in 2.31s ="],
        ['cfg: retry_on=["CUDA out of memory","NCCL timeout"]', "ep 1 acc=0.700", "finished OK"],
    ],
)
def test_every_program_says_that_it_is_done(lines: list[str]) -> None:
    """In its own words."""
    assert diagnose(lines).ended_well


@pytest.mark.parametrize(
    "lines", [[OUT_OF_MEMORY, "done"], ["ERROR x: it broke", "done"], ["building the index: done"]]
)
def test_a_part_that_is_done_is_no_good_end(lines: list[str]) -> None:
    """Nor is it one where something failed before."""
    assert not diagnose(lines).ended_well


@pytest.mark.parametrize(
    "said",
    [
        ['guard: run 311 ended "OOMKilled"'],
        ["watch.on_reason: [OOMKilled, Evicted, DeadlineExceeded]"],
        ["[bulletin] 07:55 job llama-13b: Xid 79 on ip-10-0-9-9, node cordoned"],
        ["[notify]   job llama (not this job): NVRM: Xid (PCI:0000:53:00): 79, pid=1181"],
        ["  on_oomkilled: retry   # reason OOMKilled", '  on_full: "No space left on device"'],
        ['  alerts.disk_full.pattern : "no space left on device"'],
        ['sample 0: "User: my job says CUDA out of memory, what do I do?"'],
        ["  node_check: skip    # or: fail when Xid 79 is seen"],
        ['*  job "ft-22" died with "OSError: [Errno 28] No space left on', '*  Known issue: "EIO"'],
        [
            "    Last State:     Terminated",
            "      Reason:       OOMKilled",
            "      Exit Code:    137",
        ],
        ["launcher:   | torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.83 GiB."],
        ["[status-bot]   Warning  OOMKilled  pod/bert-0  3m"],
        ["optional model lid.176.bin not found, filter off"],
        ["[monitor] pod bert-1: container trainer terminated: OOMKilled (exit 137)"],
        [
            "libfabric:61:core:open():9<warn> Failed to open /sys/x: No such file or directory",
            *(f"{{'loss': 1.{n}, 'grad_norm': 1.4, 'epoch': 0.{n}}}" for n in (17, 18)),
        ],
    ],
)
def test_an_error_of_its_own_counts_more_than_what_it_said_before(said: list[str]) -> None:
    """A setting, a list of runs, another pod's end, or a warning before steps."""
    trace = ["Traceback (most recent call last):", '  File "/workspace/mix.py", line 6, in f']
    found = diagnose([*said, *trace, "KeyError: 'stackexchange-v2'"])
    assert "stackexchange-v2" in found.cause


def test_what_a_program_says_and_goes_on_for_long_did_not_end_it() -> None:
    """An exception is another thing, and so is the end of the lines."""
    said, on = "error: subprocess-exited-with-error", [f"part {number}" for number in range(10)]
    assert diagnose([said]).code is LogCode.MODULE_MISSING
    assert diagnose([said, *on]).code is None
    assert diagnose(["torch.OutOfMemoryError: CUDA out of memory.", *on]).code is not None


def test_a_program_may_end_itself_by_a_code_of_its_own() -> None:
    """Then what it called an error is the cause; of Python's code 1 it need not be."""
    said = "ERROR | [guard] eval perplexity 812.40 above limit 50.00 for 2 evals in a row"
    failed = "E1 api.py:869] failed (exitcode: {}) local_rank: 0 (pid: 90) of binary: python3"
    found = diagnose([said, failed.format(42)])
    assert found.code is LogCode.EXCEPTION
    assert said in found.cause
    assert diagnose([said, failed.format(1)]).code is None


def test_a_file_system_that_answers_again_is_no_trouble() -> None:
    """A short break of Lustre heals by itself."""
    lost = "Lustre: x-OST0001-osc: Connection to x-OST0001 (at 10.2.0.51@tcp) was lost"
    assert diagnose([lost]).code is LogCode.FILE_SYSTEM_LOST
    assert diagnose([lost, "Lustre: x-OST0001-osc: Connection restored to 10.2.0.51"]).code is None


def test_what_is_reported_of_other_jobs_is_not_this_ones() -> None:
    """The program goes on to its own error."""
    report = "fleetwatch: job cpt-12  FAILED  node ip-10-0-4-4: NVRM: Xid 79"
    own = "submit: ERROR run 'cpt' already exists in registry"
    assert diagnose([report]).code is LogCode.GPU_LOST
    found = diagnose([report, own])
    assert found.code is None
    assert own in found.cause
