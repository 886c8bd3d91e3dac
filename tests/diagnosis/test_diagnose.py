"""Logs explained: the cause among what only followed from it."""

import pytest

from megatron_eks.config.explanations import explanations
from megatron_eks.diagnosis.codes import LogCode
from megatron_eks.diagnosis.diagnose import Diagnosis, diagnose
from megatron_eks.diagnosis.signatures import Tier, signatures
from megatron_eks.ops.jobs.diagnosis import in_phase
from tests.diagnosis.known import EXCERPTS

TIMEOUT = (
    "[rank{rank}]:[E1120 08:02:11.301 ProcessGroupNCCL.cpp:683] [Rank {rank}] Watchdog caught"
    " collective operation timeout: WorkNCCL(SeqNum={number}, OpType={kind}, NumelIn=1)"
)
OUT_OF_MEMORY = "[rank7]: torch.OutOfMemoryError: CUDA out of memory."


def code_of(*lines: str) -> LogCode | None:
    """Return the code of what is blamed."""
    return diagnose(lines).code


def timeout(rank: int, *, number: int = 77, kind: str = "ALLREDUCE") -> str:
    """Return a rank's line about a collective that did not end."""
    return TIMEOUT.format(rank=rank, number=number, kind=kind)


def step(number: int) -> str:
    """Return Megatron's line about a step."""
    return f" iteration   {number}/   1000 | consumed samples: 64 | lm loss: 2.1E+00 |"


@pytest.mark.parametrize("excerpt", EXCERPTS.values(), ids=EXCERPTS)
def test_excerpt_is_explained(excerpt: dict[str, str]) -> None:
    """Each known trouble is told from the others, with its cascades around it."""
    found = diagnose(excerpt["log"].splitlines())
    wanted = LogCode[excerpt["code"].partition(".")[0]]
    forms = {each.name: each for each in signatures()}
    if forms[excerpt["code"]].tier is Tier.CONSEQUENCE:
        assert (found.code, [each.code for each in found.cascades]) == (None, [wanted])
    else:
        assert found.code is wanted
        if "." in excerpt["code"]:
            assert found.cause.startswith(forms[excerpt["code"]].what.partition("{")[0].rstrip("."))


def test_every_trouble_has_an_excerpt() -> None:
    """And every code of logs has a signature."""
    assert len({each.name for each in signatures()}) == len(signatures())
    assert {each["code"] for each in EXCERPTS.values()} == {each.name for each in signatures()}
    assert {each.code for each in signatures()} == set(LogCode)


def test_cause_stands_before_and_after_its_cascades() -> None:
    """The order of the ranks' logs in a file says nothing."""
    cascades = [timeout(rank) for rank in range(7)]
    for log in ([OUT_OF_MEMORY, *cascades], [*cascades, OUT_OF_MEMORY]):
        found = diagnose(log)
        assert (found.code, found.rank) == (LogCode.CUDA_OUT_OF_MEMORY, 7)
        assert [(each.code, each.lines) for each in found.cascades] == [
            (LogCode.COLLECTIVE_TIMED_OUT, 7)
        ]


def test_of_two_causes_the_first_in_time_is_named() -> None:
    """Whichever stands first in the file."""
    late = "[rank0]: 2026-11-20 08:05:00 OSError: [Errno 28] No space left on device"
    early = "[rank1]: 2026-11-20 08:01:00 RuntimeError: CUDA out of memory"
    assert code_of(late, early) is LogCode.CUDA_OUT_OF_MEMORY


def test_survived_failure_is_not_the_cause() -> None:
    """Training went on after it, so it did not end the run."""
    log = [OUT_OF_MEMORY, step(1), step(2), step(3), "OSError: [Errno 28] No space left on device"]
    assert code_of(*log) is LogCode.DISK_FULL
    assert diagnose(log).last_step == 3


def test_one_more_step_of_another_rank_is_no_survival() -> None:
    """A rank may report the step that all had done when one failed."""
    assert code_of(step(1), OUT_OF_MEMORY, step(2), timeout(0)) is LogCode.CUDA_OUT_OF_MEMORY


def test_what_held_the_pod_up_is_not_what_ended_it() -> None:
    """Scheduling took a while, and then the program failed."""
    waited = "[1] event FailedScheduling: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    assert code_of(waited, "ValueError: bad") is LogCode.EXCEPTION
    assert code_of(waited) is LogCode.NOT_SCHEDULED


def laggards(*lines: str) -> str:
    """Return the cause, which names who held the others up."""
    return diagnose(lines).cause


def test_rank_that_is_behind_is_named() -> None:
    """By what the watchdogs say was enqueued last."""
    behind = (
        "[rank{}]:[E1120 08:02:11.4 ProcessGroupNCCL.cpp:1895]"
        " [PG ID 0 PG GUID 0(default_pg) Rank {}] Timeout at NCCL work: 11,"
        " last enqueued NCCL work: {}, last completed NCCL work: 9."
    )
    log = [timeout(rank) for rank in range(3)]
    log += [behind.format(rank, rank, 10 if rank == 2 else 12) for rank in range(3)]
    assert "Rank 2 had come to collective 10 and the others to 12." in laggards(*log)


def test_rank_that_called_something_else_is_named() -> None:
    """Ranks that wait in different collectives wait for ever."""
    log = [timeout(0), timeout(1), timeout(2, kind="BROADCAST")]
    assert "at collective 77 ranks 0, 1 ALLREDUCE, rank 2 BROADCAST." in laggards(*log)
    assert code_of(*log) is LogCode.RANKS_DISAGREE


def test_what_was_done_before_the_wait_is_told() -> None:
    """A save that gathers, called on rank 0 alone, keeps the others waiting."""
    log = ["INFO:accelerate.accelerator:Saving FSDP model", timeout(1), timeout(2)]
    found = diagnose(log)
    assert "Rank 0 said nothing of it, and the others waited." in found.cause
    assert "a checkpoint was being saved" in found.cause
    assert "on all ranks" in found.remedy
    over = ["successfully saved checkpoint from iteration 7", timeout(1), timeout(2)]
    assert "saved" not in laggards(*over)


def test_silent_rank_is_named() -> None:
    """The number of ranks is in NCCL's own line."""
    log = ["NCCL INFO comm 0x1 rank 0 nranks 4 cudaDev 0", *(timeout(rank) for rank in (0, 1, 3))]
    assert "Rank 2 said nothing of it, and the others waited." in laggards(*log)


def test_no_rank_is_blamed_without_a_reason() -> None:
    """All timed out in the same collective, so nothing more is known."""
    what = explanations()[LogCode.COLLECTIVE_TIMED_OUT].what
    assert laggards(timeout(0), timeout(1)).endswith(what[1:])


@pytest.mark.parametrize(
    "line",
    [
        "NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 4 nics)",
        "p4d-0:1:1 [0] NCCL INFO Bootstrap : Using eth0:10.0.1.5<0>",
        "WARNING: could not find the metadata file /shared/latest_checkpointed_iteration.txt",
        "    will not load any checkpoints and will start from random",
        "/usr/lib/python3.12/site-packages/torch/x.py:1: FutureWarning: error: use torch.amp",
        step(5),
        "  successfully saved checkpoint from iteration     500 to /shared/checkpoints",
        "> building indices for blendable datasets",
        "number of nan iterations:   0 | number of skipped iterations:   0 |",
        "+ torchrun --nproc_per_node=8 --nnodes=2 --rdzv_endpoint=10.2.1.4:2345 no_such.py",
        "$ python3 -m torch.distributed.run --nnodes=1:2 --nproc_per_node=1 train.py /data/imgs",
        "root@trainer-0:/workspace# python train.py --on-error 'CUDA out of memory'",
        "#14 [ 3/9] RUN pip install x || echo 'No matching distribution found'",
        " => ERROR [4/9] RUN grep -q 'Permission denied' /tmp/log",
        "Step 3/9 : RUN echo 'Connection refused'",
        "    --exit-signal-handler --error 'Permission denied' \\",
        "  exit_on_missing_checkpoint ...................... Permission denied",
        "[3/49] /usr/local/cuda/bin/nvcc -DERR='CUDA out of memory' -c x.cu -o x.o",
        "Using nproc_per_node=auto, setting nproc_per_node to 8 since the instance has 8 gpu",
        "  nproc_per_node   : 8",
        "│ ❱  88     raise ValueError('Permission denied')                            │",
        "/usr/bin/ld: cannot find -laio: No such file or directory",
        "df: /root/.triton/autotune: No such file or directory",
        "W tensorflow/x.cc:64] Could not load dynamic library 'x.so'; dlerror: No such file",
        "No checkpoint found at /shared/ckpt, starting from scratch",
        "make: 'helpers' is up to date.",
        "Cuda is not available, training on the CPU",
        "2026-11-20 10:00:01 [i]  deletion protection enabled for cluster tp",
        "  host: https://ABC.gr7.us-east-2.eks.amazonaws.com",
        "The maximum number of retries has been reached",
        "frame #3: c10d::ProcessGroupNCCL::WorkNCCL::handleException(NCCL error) + 0x2a6",
    ],
)
def test_healthy_line_is_no_trouble(line: str) -> None:
    """What every run prints is blamed for nothing."""
    assert code_of(line) is None


def test_unknown_log_says_what_to_give() -> None:
    """No cause is better than a wrong one."""
    found: Diagnosis = diagnose(["all is well"] * 3)
    assert (found.code, found.cause) == (None, "no known trouble in 3 lines")


def test_long_and_broken_lines_are_read() -> None:
    """Progress bars, colours and a line of megabytes."""
    bar = "\r".join(f"{done}%" for done in range(100))
    assert code_of("x" * 5_000_000, f"{bar}\r\x1b[31mCUDA out of memory\x1b[0m\n") is not None


@pytest.mark.parametrize(
    "said",
    [
        "error node 1: it has lost its ranks",
        "error node 1: it has started anew",
        "error process 7: it used no CPU time for 660 s",
    ],
)
@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("[rank1]: torch.OutOfMemoryError: CUDA out of memory.", LogCode.CUDA_OUT_OF_MEMORY),
        ("[rank1]: ValueError: 3 is no multiple of 8", LogCode.EXCEPTION),
        ("  exitcode  : -9 (pid: 90)", LogCode.KILLED),
    ],
)
def test_watchers_follow_from_the_end_of_another_rank(said: str, end: str, code: LogCode) -> None:
    """What a watcher says, and the SIGKILL that it then sends, are no cause where one stands."""
    watched = [f"[0] {said} - all ranks start again", "[0]   exitcode  : -9 (pid: 71)"]
    before, failed = "[0] step 10/30, loss: 37.594", f"[1] {end}"
    for log in ([before, *watched, failed], [failed, before, *watched]):
        found = diagnose(log)
        assert (found.code, found.rank) == (code, 1)
    alone = diagnose([before, *watched])
    assert not alone.certain
    assert "watcher" in alone.cause
    again = [f"[0] step {number}/30, loss: 3.1" for number in range(10, 14)]
    assert "training went on" in diagnose([before, *watched, *again]).cause
    assert code_of(before, *watched, *again, watched[-1]) is LogCode.KILLED


def test_certain_is_what_its_words_alone_can_mean() -> None:
    """Not what has other causes too, and not beside another trouble that may have come first."""
    full = "[rank5]: OSError: [Errno 28] No space left on device: '/shared/checkpoints/x'"
    assert diagnose([full]).certain
    assert not diagnose(["[rank2]: ValueError: 3 is no multiple of 8"]).certain
    lost = "[rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered"
    both = diagnose([full, lost])
    assert (both.code, both.certain) == (LogCode.DISK_FULL, False)
    assert diagnose([full, timeout(0)]).certain, "what follows from it is no other trouble"


@pytest.mark.parametrize(
    "line",
    [
        "plan.PlanRejected: refused: this plan would end in CUDA out of memory (105 GiB > 79 GiB)",
        "< The kernel log says NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.",
    ],
)
def test_what_others_say_or_what_might_be_is_never_certain(line: str) -> None:
    """A program may print any words."""
    assert not diagnose([line]).certain


@pytest.mark.parametrize(
    "line",
    [
        '  --oom {abort,skip}  what to do on "CUDA out of memory"',
        '                        what to do on "No space left on device" while saving',
        '      SAVE_ON_ERROR:  "no space left on device"',
    ],
)
def test_help_and_settings_are_no_trouble(line: str) -> None:
    """Of a program's options, and of a pod that is described."""
    assert diagnose([line]).code is None


def test_a_request_that_was_tried_again_is_over_when_its_program_went_on() -> None:
    """Without steps too; not where something worse came after it."""
    again = "WARNING Retrying after connection broken by 'NewConnectionError(\"refused\")'"
    again = f"urllib3.connectionpool {again}: rendezvous Connection refused"
    went_on = [f"epoch {number} accuracy 0.7" for number in range(10)]
    assert diagnose([again]).code is not None
    assert diagnose([again, *went_on]).code is None
    assert diagnose([again, *went_on, timeout(0)]).code is not None


def test_ranks_that_made_steps_reach_each_other() -> None:
    """What EFA then does not reach is gone: no security group is in the way."""
    provider = "node:1:1 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa"
    lost = "libfabric:1:1::efa:cq:handle_error():7<warn> err: 113, message: Unresponsive receiver"
    lost += " (reachable by EFA device but handshake failed)"
    group = "Failure inserting remote address; completed with error. RC: 113"
    assert "security group" in diagnose([provider, group]).remedy
    assert "security group" not in diagnose([provider, step(7), group, lost]).remedy
    assert diagnose([provider, step(7), lost]).code is LogCode.UNREACHABLE_PEER


def test_what_slows_a_run_is_told_though_it_goes_on() -> None:
    """Nothing outlives it: every step after it is slow."""
    slow = "[0] node:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0"
    assert code_of(slow, *map(step, range(1, 9))) is LogCode.TCP_INSTEAD_OF_EFA


def test_a_job_that_runs_or_has_succeeded_is_said_to() -> None:
    """The cluster knows it where the lines tell nothing; a cause that they do tell stays."""
    quiet = diagnose(map(step, range(1, 9)))
    runs, done = (in_phase(quiet, phase) for phase in ("Running", "Succeeded"))
    assert runs.cause == "it runs, step 8: no known trouble in 8 lines"
    assert (done.cause, done.ended_well) == ("the run ended well, step 8", True)
    assert in_phase(quiet, "Failed") == quiet
    failed = diagnose([OUT_OF_MEMORY])
    assert in_phase(failed, "Running") == failed
