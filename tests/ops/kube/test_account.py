"""What a restart lost, and which checkpoint is the newest."""

from datetime import timedelta

from megatron_eks.ops.jobs import alarms
from tests.ops.kube.looks import BEGUN, NOW, line, loaded, look, pod, saved, stamp


def steps(first, last, *, until=NOW, each=40.0):
    """Return a line every tenth step, the last of them now."""
    return [
        line(number, until - timedelta(seconds=each * (last - number)))
        for number in range(first, last + 1, 10)
    ]


def test_a_restart_is_counted_with_what_it_lost():
    """In place, of both ranks; the steps since the checkpoint were done again."""
    again = BEGUN + timedelta(hours=1)
    pods = [pod(rank, restarts=1, begun=again, before=BEGUN) for rank in range(2)]
    seen = look(
        steps(60, 110),
        begin=[f"{stamp(again)} x", loaded(50, again)],
        before=steps(10, 80, until=again),
        before_begin=[f"{stamp(BEGUN)} x"],
        pods=pods,
    )
    counted = alarms.restarts(seen)
    assert (counted.gang, counted.used, counted.limit, counted.lost_steps) == (1, 2, 6, 30)


def test_the_newest_checkpoint():
    """Of a save, else of the start; of neither it is said why."""
    with_save = look([saved(100, NOW - timedelta(hours=1)), *steps(110, 150)])
    found = alarms.checkpoint(with_save)
    assert (found.step, found.at) == (100, NOW - timedelta(hours=1))
    begin = [f"{stamp(BEGUN)} x", loaded(40, BEGUN)]
    found = alarms.checkpoint(look(steps(50, 90), begin=begin))
    assert (found.step, found.at) == (40, None)
    assert found.how == "it went on from it, and tells of none since"
    found = alarms.checkpoint(look(steps(50, 90)))
    assert found.step is None
    assert "neither the first 256 KiB nor the last 1000 lines" in found.how
    assert alarms.checkpoint(look([])).how == "no step is logged yet"
