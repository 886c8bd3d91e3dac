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
def file(tmp_path):
    """Return a file that a program begins where transformers does."""
    (folder := tmp_path / "runs" / "Nov30").mkdir(parents=True)
    return folder / NAME.format(BEGAN + 9)


@pytest.fixture
def told(tmp_path):
    """Return a function that looks some times and gives the value of a series."""
    clock = Clock()
    clock.now = BEGAN + 0.5
    plan = Plan("job", "torchrun", 0, event_files=str(tmp_path), gpus=8)
    exporter = Exporter(plan, 0, lambda: None, clock=clock)

    def tell(name, looks=1, says=""):
        exporter.see(says.encode())
        for _ in range(looks):
            exporter.look()
        return value(exporter, name)

    return tell


def test_the_checksum_is_that_of_every_event_file():
    """Each begins with a record of 24 bytes that says its version."""
    assert masked_crc(struct.pack("<Q", 24)) == bytes.fromhex("a37f4b22")


TITAN = {"loss_metrics/global_avg_loss": 2.5, "loss_metrics/global_max_loss": 9, "mfu(%)": 25}
TITAN |= {"throughput(tps)": 100, "time_metrics/end_to_end(s)": 0.75}
TITAN |= {"time_metrics/data_loading(s)": 0.125}


@pytest.mark.parametrize(
    ("form", "written", "expected"),
    [
        (
            scalar,
            {"train/loss": 2.5, "train/grad_norm": 0.5, "train/epoch": 1},
            {"grad_norm": 0.5, "step_seconds": 4, "mfu_ratio": None},
        ),
        (
            scalar,
            TITAN,
            {"tokens_per_second": 800, "mfu_ratio": 0.25, "step_seconds": 0.75}
            | {"data_wait_seconds": 0.125},
        ),
        (scalar, {"lm loss": 2.5, "lm loss vs samples": 9, "grad-norm": 0.5}, {"grad_norm": 0.5}),
        (tensor, {"train_loss": 2.5, "val_loss": 9}, {"step_seconds": 4}),
    ],
    ids=["transformers", "torchtitan", "Megatron-LM", "Lightning, as tensors"],
)
def test_names_of_known_programs_are_told(told, file, form, written, expected):
    """Each of them has its own; what none of them is known by is left."""
    values = b"".join(form(*each) for each in written.items())
    image = record(7, part(1, part(1, b"image") + part(4, b"\0" * 9000)))
    file.write_bytes(record(6, values, after=10) + image + record(8, values, after=18))
    expected |= {"step": 8, "loss": 2.5, "last_step_timestamp_seconds": BEGAN + 18}
    expected |= {"silent_limit_seconds": 120 + FLUSH_SECONDS}
    assert {name: told(name) for name in expected} == expected


def test_a_record_that_is_not_whole_is_waited_for(told, file):
    """One look sees half of it, another its bytes before they are what its checksum says."""
    first, second, third = (record(step, scalar("loss", step), step) for step in (1, 2, 3))
    for seen in (second[:-9], second[:-9] + b"\0" * 9, second, second + b"\0" * 99 + third):
        file.write_bytes(first + seen)
        assert told("step") == (2 if seen.startswith(second) else 1)


def test_the_newest_file_with_a_loss_counts(told, file):
    """Not one of a run before, nor of an evaluation; each that starts over does, later."""
    file.with_name(NAME.format(BEGAN - 1)).write_bytes(record(90, scalar("loss", 1)))
    assert told("step") is None
    file.write_bytes(record(50, scalar("loss", 2)))
    file.with_name(NAME.format(BEGAN + 20)).write_bytes(record(70, scalar("eval/loss", 1)))
    assert told("step", looks=6) == 50
    file.with_name(NAME.format(BEGAN + 30)).write_bytes(record(40, scalar("loss", 2)))
    assert told("step", looks=6) == 40


def test_what_the_log_says_wins(told, file):
    """Its step is there at once; what its lines leave out is known from the file."""
    written = record(9, scalar("loss", 7)) + record(10, scalar("loss", 7))
    file.write_bytes(written)
    assert told("grad_norm", says=STEP.replace(" | grad norm 0.750", "")) is None
    file.write_bytes(written + record(10, scalar("grad_norm", 0.5)))
    expected = {"step": 10, "loss": 2.5, "grad_norm": 0.5, "silent_limit_seconds": 120}
    assert {name: told(name) for name in expected} == expected
