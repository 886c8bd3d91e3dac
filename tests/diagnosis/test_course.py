"""What was over before the end, what only followed, and what nobody knows."""

import random

import pytest

from megatron_eks.diagnosis.codes import LogCode
from megatron_eks.diagnosis.diagnose import diagnose
from megatron_eks.diagnosis.signatures import signatures
from megatron_eks.diagnosis.tally import tally


def test_what_was_tried_again_is_not_the_cause() -> None:
    """A request refused, a way around, and then an error of the program."""
    tried = "Couldn't connect to the Hub: 429 Client Error: Too Many Requests. Will try the cache"
    assert diagnose([tried, "ValueError: bad"]).code is LogCode.EXCEPTION
    assert diagnose([tried]).code is LogCode.HUB_UNREACHABLE


def test_advice_on_the_same_line_hides_nothing() -> None:
    """The allocator's error and its advice are one line."""
    line = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total"
        " capacity of 40.00 GiB of which 100.00 MiB is free. this process has 8.00 GiB memory in"
        " use. If reserved but unallocated memory is large try setting expandable_segments"
    )
    found = diagnose([line])
    assert found.code is LogCode.CUDA_OUT_OF_MEMORY
    assert "Other processes hold 31.9 GiB" in found.cause
    assert "nvidia-smi" in found.remedy[:40]


def test_launchers_report_names_who_failed_first_and_no_cause() -> None:
    """Its own traceback is elsewhere."""
    report = [
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        "Root Cause (first observed failure):",
        "[0]:",
        "  host      : p5-3",
        "  rank      : 27 (local_rank: 3)",
        "  exitcode  : 1 (pid: 77)",
    ]
    found = diagnose(report)
    assert (found.code, found.certain) == (None, False)
    assert "Rank 27 on p5-3 ended first, with exit code 1." in found.cause


def test_exception_is_told_with_its_place() -> None:
    """The last line of the program's own, not of a library."""
    log = [
        "[rank1]: Traceback (most recent call last):",
        '[rank1]:   File "/work/train.py", line 12, in main',
        '[rank1]:   File "/opt/venv/lib/python3.12/site-packages/torch/x.py", line 9, in call',
        "[rank1]: KeyError: 'own'",
    ]
    assert "KeyError: 'own' (train.py line 12)" in diagnose(log).cause


def test_bare_assertion_is_told_with_its_line() -> None:
    """Python prints the line of the program above."""
    log = ['  File "/work/x.py", line 3, in build', "    assert num_samples > 0", "AssertionError"]
    assert diagnose(log).code is LogCode.EMPTY_SPLIT


def test_vague_line_gives_way_to_the_exact_one_beside_it() -> None:
    """The kubelet's event, and what mount said below it."""
    log = [
        "Warning  FailedMount  2s  kubelet  MountVolume.SetUp failed for volume fsx",
        "Output: mount.lustre: mount fs-1@tcp:/abc at /x failed: Invalid argument",
    ]
    assert diagnose(log).code is LogCode.MOUNT_NAME


def test_source_of_a_traceback_is_no_trouble() -> None:
    """The lines of the program that Python shows below a frame."""
    log = [
        "Traceback (most recent call last):",
        '  File "/work/load.py", line 3, in load',
        "    raise ValueError(",
        '        "CUDA out of memory, or Permission denied"',
        "    )",
        "ValueError: nothing to load",
    ]
    found = diagnose(log)
    assert found.code is LogCode.EXCEPTION
    assert found.cascades == ()
    deep = ['        File "<string>", line 1', "          import torch", "      CUDA out of memory"]
    assert diagnose(deep).code is LogCode.CUDA_OUT_OF_MEMORY


def test_exception_that_python_throws_away_is_no_trouble() -> None:
    """At the end of a process, from what is deleted then."""
    log = [
        "Exception ignored in: <function _Iter.__del__ at 0x7f>",
        "Traceback (most recent call last):",
        '  File "/opt/venv/lib/python3.12/site-packages/torch/x.py", line 1477, in __del__',
        "    self._shutdown_workers()",
        "OSError: [Errno 28] No space left on device",
    ]
    assert diagnose(log).code is None
    assert diagnose([*log, "ValueError: bad"]).code is LogCode.EXCEPTION


def test_error_is_told_with_the_line_after_it() -> None:
    """Some messages begin on a line of their own; the log may also end there."""
    log = ["RuntimeError: ", "Some tensors share memory, this will lead to duplicate memory"]
    assert diagnose(log).code is LogCode.NOT_SERIALISABLE
    assert diagnose(log[:1]).code is LogCode.EXCEPTION


def test_what_prepares_a_run_did_not_end_it() -> None:
    """A container's first commands complain, and then the ranks talk to each other."""
    rm = "mkdir: cannot create directory '/opt/logs': Permission denied"
    wait = "[rank1]:[E1120 08:02:11.3 x.cpp:1] Watchdog caught collective operation timeout"
    assert diagnose([rm, wait]).code is None
    assert diagnose([rm, "ValueError: bad"]).code is LogCode.EXCEPTION
    assert diagnose([rm]).code is LogCode.NOT_PERMITTED


def test_what_does_not_call_itself_an_error_is_shown_at_last() -> None:
    """Only where nothing else is known, and no cancelled resource of CloudFormation."""
    assert "could not find its" in diagnose(["ok", "the flux could not find its phase"]).cause
    failed = [
        "5:34 PM | CREATE_FAILED | AWS::IAM::Role | TrainRole Resource creation cancelled",
        "5:34 PM | CREATE_FAILED | AWS::Own::Flux | TheFlux",
    ]
    assert "TheFlux" in diagnose(failed).cause


def test_loss_that_is_no_number_is_seen_in_the_steps() -> None:
    """Nothing else is printed, and the run goes on."""
    steps = [f" iteration {n}/ 100 | lm loss: {'NAN' if n > 4 else '2.0'} |" for n in range(9)]
    assert diagnose(steps).code is LogCode.LOSS_NOT_FINITE


def test_unknown_error_is_shown_and_not_blamed() -> None:
    """The first line that calls itself one."""
    found = diagnose(["all is well", "[ERROR] the flux is out of phase", "[ERROR] so is the rest"])
    assert (found.code, found.certain) == (None, False)
    assert "the flux is out of phase" in found.cause


def test_what_is_kept_of_a_long_log_is_bounded() -> None:
    """However often a line comes back; and its first and last are kept."""
    lines = (f"[rank{n % 4}]: CUDA out of memory {n}" for n in range(20_000))
    kept = tally(lines)
    assert len(kept.ordered()) <= 4 * 16
    assert sum(kept.lines_of(each) for each in signatures()) == 20_000


def test_words_of_a_pattern_miss_no_line() -> None:
    """A line is tried only against patterns whose words it holds: with the same result."""
    texts = ["CUDA out of memory", "OOMKilled", "NVRM: Xid (PCI:0000:53:00): 79, pid=1", "EIO"]
    random.seed(7)
    for text in [*texts, *(" ".join(random.sample(texts, 2)) for _ in range(20))]:
        by_all = next((each for each in signatures() if each.fits(text)), None)
        found = diagnose([text]).code
        assert found is (by_all.code if by_all else None)


def test_abort_after_a_timeout_is_no_crash() -> None:
    """The watchdog ends its process by a signal, and torchrun tells of that."""
    log = [
        "[rank3]:[E x.cpp:1] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(x)",
        "terminate called after throwing an instance of 'c10::DistBackendError'",
        "Fatal Python error: Aborted",
        "E1120 08:02:15.000 api.py:984] failed (exitcode: -6) local_rank: 3 (pid: 9) of binary: x",
    ]
    assert diagnose(log).code is None


EFA_SILENT = (
    "[rank{}]: 2026-11-20 08:0{}:00 NCCL WARN NET/OFI Request completed with error."
    " RC: 4126. Error: Unresponsive receiver"
)


def test_peer_that_does_not_answer_had_ended_before() -> None:
    """A rank that fails of itself leaves the others with errors of the network."""
    network = {
        LogCode.UNREACHABLE_PEER: EFA_SILENT.format(1, 3),
        LogCode.PEER_REFUSED: "[rank1]: 2026-11-20 08:03:00 NCCL WARN connect: No route to host",
        LogCode.MEETING_TIMED_OUT: "[rank1]: 2026-11-20 08:03:00 Connection refused",
    }
    ends = {
        LogCode.EXCEPTION: "[rank3]: 2026-11-20 08:01:00 ValueError: no such shard",
        LogCode.KILLED: "[rank3]: 2026-11-20 08:01:00 failed (exitcode: -9) pid 77",
    }
    for echo, line in network.items():
        assert diagnose([line]).code is echo
        for code, own in ends.items():
            found = diagnose([line, own])
            assert (found.code, found.rank) == (code, 3)
            assert echo in [each.code for each in found.cascades]


def test_network_that_fails_first_is_the_cause() -> None:
    """What ranks say of themselves after it followed; so does what the same rank says."""
    later = "[rank3]: 2026-11-20 08:04:00 ValueError: no such shard"
    assert diagnose([later, EFA_SILENT.format(1, 3)]).code is LogCode.UNREACHABLE_PEER
    same = "[rank1]: 2026-11-20 08:01:00 ValueError: no such shard"
    assert diagnose([same, EFA_SILENT.format(1, 3)]).code is LogCode.UNREACHABLE_PEER


def test_end_that_was_outlived_left_no_echo() -> None:
    """Training went on after it."""
    steps = [
        f"[rank3]: 2026-11-20 08:02:0{each} iteration {each}/ 100 | lm loss: 2"
        for each in (1, 2, 3)
    ]
    early = "[rank3]: 2026-11-20 08:01:00 ValueError: no such shard"
    assert diagnose([early, *steps, EFA_SILENT.format(1, 3)]).code is LogCode.UNREACHABLE_PEER


def test_what_a_terminated_process_threw_is_what_counts() -> None:
    """The line names no rank, and what was thrown does; the watchdog throws what followed."""
    thrown = "terminate called after throwing an instance of 'std::runtime_error'"
    said = "  what():  [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=18)"
    assert diagnose([thrown, said]).code is None
    assert diagnose([thrown, "  what():  bad size"]).code is LogCode.EXCEPTION
    assert diagnose([thrown]).code is LogCode.EXCEPTION


def test_a_stall_while_fused_kernels_are_built_says_so() -> None:
    """A lock that an interrupted build left makes one rank wait for ever."""
    late = "[rank1]:[E829 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation"
    late += " timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=1)"
    found = diagnose(["> compiling and loading fused kernels ...", late])
    assert "fused kernels were being built" in found.cause
    assert "fused_kernels/build" in found.remedy


def test_torch_warns_of_a_driver_that_does_not_start_cuda() -> None:
    """Its warnings say nothing else that ends a run; this one is all that there is."""
    warned = "cuda/__init__.py:129: UserWarning: CUDA initialization: Unexpected error from"
    found = diagnose([f"{warned} cudaGetDeviceCount(). Error 802: system not yet initialized"])
    assert found.code is LogCode.FABRIC_NOT_READY
    assert diagnose(["x.py:1: UserWarning: Error 802: system not yet initialized"]).code is None


def test_a_norm_that_is_no_number_is_no_progress() -> None:
    """Megatron's line of a step, without a loss."""
    line = (
        " iteration {}/ 1000 | consumed samples: 10 | grad norm: {} | number of nan iterations: 0 |"
    )
    assert diagnose([line.format(10, "nan")]).code is LogCode.LOSS_NOT_FINITE
    assert diagnose([line.format(10, "inf")]).code is None


def test_an_error_follows_from_what_the_program_said_of_its_input() -> None:
    """A plain message some lines above is told first."""
    said = "error: corpus shard 17 is missing in /shared/data/c4"
    found = diagnose([said, "Traceback (most recent call last):", "TypeError: bad operand"])
    assert found.code is LogCode.EXCEPTION
    assert said in found.cause
    assert found.remedy.startswith("Mend what it said first")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("WARNING: dataset c4 has 0 documents after filtering", "told"),
        ("WARNING:root:no samples found in /shared/data/c4", "told"),
        ("WARNING: the file /shared/data/c4.jsonl is empty", "told"),
        ("WARNING: dataset c4 has 10 documents after filtering", "not"),
        ("WARNING: 0 documents were skipped", "not"),
        ("wandb: Network error (ConnectionError), entering retry loop.", "not"),
        ("WARNING: the tokenizer could not be compiled", "not"),
    ],
)
def test_of_warnings_an_empty_input_is_what_an_error_follows_from(said: str, told: str) -> None:
    """Other warnings stand in every log."""
    found = diagnose([said, "Traceback (most recent call last):", "IndexError: out of range"])
    assert (said in found.cause) is (told == "told")


def test_sockets_are_the_likely_cause_where_ranks_only_waited() -> None:
    """Before any step; after one they were only slow."""
    sockets = "p5-1:77:120 [0] NCCL INFO Using network Socket"
    waited = "[rank0]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)"
    found = diagnose([sockets, waited])
    assert (found.code, found.certain) == (LogCode.TCP_INSTEAD_OF_EFA, False)
    assert diagnose([sockets, " iteration 7/ 90 | lm loss: 2 |", waited]).code is None


def test_an_exception_may_have_any_name() -> None:
    """What ends a traceback is one."""
    raised = "plugins.s3_reader.ShardMissing: shard 00417 absent from manifest v12"
    frame = '  File "/app/reader.py", line 9, in read'
    found = diagnose(["Traceback (most recent call last):", frame, "    raise x", raised])
    assert (found.code, raised in found.cause) == (LogCode.EXCEPTION, True)
    assert diagnose([raised]).code is None
