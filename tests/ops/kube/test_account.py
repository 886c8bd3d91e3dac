"""What counted of a run's time, what a restart lost, and which checkpoint is the newest."""

from datetime import timedelta

import pytest

from megatron_eks.ops.jobs import account, pace
from tests.ops.kube.looks import BEGUN, NOW, line, loaded, look, pod, saved, stamp


def steps(first, last, *, until=NOW, each=40.0):
    """Return a line every tenth step, the last of them now."""
    return [
        line(number, until - timedelta(seconds=each * (last - number)))
        for number in range(first, last + 1, 10)
    ]


def goodput(seen):
    """Return what counted."""
    return account.goodput(seen, pace.pace(seen, None))


def test_a_run_without_a_restart():
    """Its steps from the beginning, over the time since its container began."""
    found = goodput(look(steps(10, 150)))
    assert (found.steps, found.first_start, found.since) == (150, True, BEGUN)
    assert found.share == pytest.approx(150 * 40 / 7200)


def test_a_run_that_went_on_from_a_checkpoint():
    """What an earlier job did is not its own."""
    begin = [f"{stamp(BEGUN)} x", loaded(1000, BEGUN)]
    found = goodput(look(steps(1010, 1150), begin=begin))
    assert found.steps == 150


def test_after_one_restart_the_first_start_still_counts():
    """Steps that were done again count once, the time of both starts counts."""
    again = BEGUN + timedelta(hours=1)
    pods = [pod(rank, restarts=1, begun=again, before=BEGUN) for rank in range(2)]
    seen = look(
        steps(60, 110),
        begin=[f"{stamp(again)} x", loaded(50, again)],
        before=steps(10, 80, until=again),
        before_begin=[f"{stamp(BEGUN)} x"],
        pods=pods,
    )
    found = goodput(seen)
    assert (found.steps, found.first_start, found.since) == (110, True, BEGUN)
    assert found.share == pytest.approx(110 * 40 / 7200)
    counted = account.restarts(seen)
    assert (counted.gang, counted.used, counted.limit, counted.lost_steps) == (1, 2, 6, 30)


def test_after_many_restarts_it_is_known_since_the_one_before():
    """The log of the first start is gone, and so says the result."""
    again = BEGUN + timedelta(hours=1)
    pods = [pod(rank, restarts=5, begun=again, before=BEGUN) for rank in range(2)]
    seen = look(
        steps(560, 610),
        begin=[f"{stamp(again)} x", loaded(550, again)],
        before_begin=[f"{stamp(BEGUN)} x", loaded(500, BEGUN)],
        pods=pods,
    )
    found = goodput(seen)
    assert (found.steps, found.first_start) == (110, False)


def test_a_pod_in_the_place_of_a_lost_one_has_no_first_start():
    """It counts no restarts, but others are older."""
    again = BEGUN + timedelta(hours=1)
    pods = [pod(0, begun=again, born=again), pod(1, restarts=1, begun=again, before=BEGUN)]
    begin = [f"{stamp(again)} x", loaded(50, again)]
    found = goodput(look(steps(60, 110), begin=begin, pods=pods))
    assert (found.steps, found.first_start, found.since) == (60, False, again)


def test_a_log_that_lost_its_beginning_tells_no_goodput():
    """The kubelet keeps some files of ten megabytes; where it went on from is not guessed."""
    late = [f"{stamp(BEGUN + timedelta(minutes=30))} x"]
    assert goodput(look(steps(10, 150), begin=late)) is None
    assert goodput(look(steps(10, 150), begin=[])) is None
    assert goodput(look([])) is None


def test_clocks_that_differ_never_count_more_than_all():
    """A server's clock behind its nodes'."""
    found = goodput(look(steps(10, 150), now=BEGUN + timedelta(seconds=100)))
    assert found.share == 1
    assert goodput(look(steps(10, 150), now=BEGUN - timedelta(seconds=5))) is None


def test_the_newest_checkpoint():
    """Of a save, else of the start; of neither it is said why."""
    with_save = look([saved(100, NOW - timedelta(hours=1)), *steps(110, 150)])
    found = account.checkpoint(with_save)
    assert (found.step, found.at) == (100, NOW - timedelta(hours=1))
    begin = [f"{stamp(BEGUN)} x", loaded(40, BEGUN)]
    found = account.checkpoint(look(steps(50, 90), begin=begin))
    assert (found.step, found.at) == (40, None)
    assert found.how == "it went on from it, and tells of none since"
    found = account.checkpoint(look(steps(50, 90)))
    assert found.step is None
    assert "neither the first 256 KiB nor the last 1000 lines" in found.how
    assert account.checkpoint(look([])).how == "no step is logged yet"
