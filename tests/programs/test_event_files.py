"""What is read of TensorBoard's event files; their bytes are made here, by the formats' rules."""

import struct

import pytest

from megatron_eks.programs.exporter.event_files import FLUSH_SECONDS, masked_crc
from megatron_eks.programs.exporter.plan import Plan
from megatron_eks.programs.exporter.run import Exporter
from tests.alerts.played import Clock
from tests.programs.test_exporter import STEP, value

BEGAN = 1_800_000_000
NAME = "events.out.tfevents.{}.node.7.0"


def part(number, data, kind=2):
    """Return a field of a message: bytes with their length, or a number of 4 or 8 bytes."""
    size = b"" if kind != 2 else bytes([len(data) & 127 | 128, len(data) >> 7])
    return bytes([number << 3 | kind]) + size + data


def scalar(tag, number):
    """Return a Summary.Value as SummaryWriter.add_scalar makes it."""
    return part(1, part(1, tag.encode()) + part(2, struct.pack("<f", number), 5))


def tensor(tag, number):
    """Return one in the newer form, in double precision."""
    held = b"\x08\x02" + part(6, struct.pack("<d", number))
    return part(1, part(1, tag.encode()) + part(8, held) + part(9, part(1, b"scalars")))


def record(step, values, after=0.0):
    """Return an event's record, of some seconds after the program began."""
    event = part(1, struct.pack("<d", BEGAN + after), 1) + bytes([16, step]) + part(5, values)
    length = struct.pack("<Q", len(event))
    return length + masked_crc(length) + event + masked_crc(event)


@pytest.fixture
def exporter(tmp_path):
    """Return an exporter of a program of eight GPUs that has begun, and its clock."""
    clock = Clock()
    clock.now = BEGAN + 0.5
    plan = Plan("job", "torchrun", 0, event_files=str(tmp_path), gpus=8)
    return Exporter(plan, 0, lambda: None, clock=clock)


@pytest.fixture
def file(tmp_path):
    """Return a file that a program begins where transformers does."""
    (folder := tmp_path / "runs" / "Nov30").mkdir(parents=True)
    return folder / NAME.format(BEGAN + 9)


def test_the_checksum_is_that_of_every_event_file():
    """Each begins with a record of 24 bytes that says its version."""
    assert masked_crc(struct.pack("<Q", 24)) == bytes.fromhex("a37f4b22")


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (
            scalar("train/loss", 2.5) + scalar("train/grad_norm", 0.5) + scalar("train/epoch", 1),
            {"loss": 2.5, "grad_norm": 0.5, "step_seconds": 4, "mfu_ratio": None},
        ),
        (
            scalar("loss_metrics/global_avg_loss", 2.5)
            + scalar("loss_metrics/global_max_loss", 9)
            + scalar("throughput(tps)", 100)
            + scalar("mfu(%)", 25)
            + scalar("time_metrics/end_to_end(s)", 0.75)
            + scalar("time_metrics/data_loading(s)", 0.125),
            {"loss": 2.5, "tokens_per_second": 800, "mfu_ratio": 0.25, "step_seconds": 0.75}
            | {"data_wait_seconds": 0.125},
        ),
        (
            scalar("lm loss", 2.5) + scalar("lm loss vs samples", 9) + scalar("grad-norm", 0.5),
            {"loss": 2.5, "grad_norm": 0.5},
        ),
        (tensor("train_loss", 2.5) + tensor("val_loss", 9), {"loss": 2.5}),
    ],
    ids=["transformers", "torchtitan", "Megatron-LM", "Lightning, as tensors"],
)
def test_names_of_known_programs_are_told(exporter, file, written, told):
    """Each of them has its own; what none of them is known by is left."""
    image = record(7, part(1, part(1, b"image") + part(4, b"\0" * 9000)))
    file.write_bytes(record(6, written, after=10) + image + record(8, written, after=18))
    exporter.look()
    assert {name: value(exporter, name) for name in told} == told
    assert value(exporter, "step") == 8
    assert value(exporter, "last_step_timestamp_seconds") == BEGAN + 18
    assert value(exporter, "silent_limit_seconds") == 120 + FLUSH_SECONDS


def test_a_record_that_is_not_whole_is_waited_for(exporter, file):
    """One look sees half of it, another its bytes before they are what its checksum says."""
    first, second = (record(step, scalar("loss", step), step) for step in (1, 2))
    for seen in (second[:-9], second[:-9] + b"\0" * 9, second):
        file.write_bytes(first + seen)
        exporter.look()
        assert value(exporter, "step") == (2 if seen is second else 1)
    file.write_bytes(first + second + b"\0" * 99 + record(3, scalar("loss", 3)))
    exporter.look()
    assert value(exporter, "step") == 2


def test_the_newest_file_with_a_loss_counts(exporter, file):
    """Not one of a run before, nor of an evaluation; each that starts over does, later."""
    before = file.with_name(NAME.format(BEGAN - 1))
    before.write_bytes(record(90, scalar("loss", 1)))
    exporter.look()
    assert value(exporter, "step") is None
    file.write_bytes(record(50, scalar("loss", 2)))
    file.with_name(NAME.format(BEGAN + 20)).write_bytes(record(70, scalar("eval/loss", 1)))
    for _ in range(6):
        exporter.look()
    assert value(exporter, "step") == 50
    file.with_name(NAME.format(BEGAN + 30)).write_bytes(record(40, scalar("loss", 2)))
    for _ in range(6):
        exporter.look()
    assert value(exporter, "step") == 40


def test_what_the_log_says_wins(exporter, file):
    """Its step is there at once; what its lines leave out is known from the file."""
    line = STEP.replace(" | grad norm 0.750", "")
    exporter.see(line.encode())
    file.write_bytes(record(9, scalar("loss", 7)) + record(10, scalar("loss", 7)))
    exporter.look()
    assert (value(exporter, "step"), value(exporter, "loss")) == (10, 2.5)
    assert value(exporter, "grad_norm") is None
    with file.open("ab") as more:
        more.write(record(10, scalar("grad_norm", 0.5)))
    exporter.look()
    assert (value(exporter, "loss"), value(exporter, "grad_norm")) == (2.5, 0.5)
    assert value(exporter, "silent_limit_seconds") == 120
