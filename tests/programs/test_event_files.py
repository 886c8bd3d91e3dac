"""What is read of TensorBoard's event files, as TensorBoard's own writer makes them."""

from functools import partial

import pytest

from tests.programs.trainer_files import python_says

pytestmark = pytest.mark.programs

BEGAN = 1_800_000_000
# Files of a run that begins where transformers does, and an exporter that looks for them.
HELPERS = f"""
import json, sys, time
from pathlib import Path
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from tensorboard.util.tensor_util import make_tensor_proto
from megatron_eks.programs.exporter.plan import Plan
from megatron_eks.programs.exporter.run import Exporter

now = {BEGAN} + 0.5
root = Path(sys.argv[1])
(root / "runs" / "Nov30").mkdir(parents=True)
plan = Plan("job", "torchrun", 0, event_files=str(root), gpus=8)
exporter = Exporter(plan, 0, lambda: None, clock=lambda: now)

def path(second):
    return root / "runs" / "Nov30" / f"events.out.tfevents.{{{BEGAN} + second}}.node.7.0"

def record(step, values, after=0.0, tensors=False):
    summary = Summary()
    for tag, number in values.items():
        value = summary.value.add(tag=tag)
        if tensors:
            value.tensor.CopyFrom(make_tensor_proto(number))
        else:
            value.simple_value = number
    event = Event(wall_time={BEGAN} + after, step=step, summary=summary)
    with open(root / "one", "wb") as file:
        RecordWriter(file).write(event.SerializeToString())
    return (root / "one").read_bytes()

def told(*names, looks=1):
    for _ in range(looks):
        exporter.look()
    rows = [row for row in exporter.text().splitlines() if row[0] != "#"]
    known = {{row.partition("{{")[0]: float(row.split()[-1]) for row in rows}}
    return [known.get(f"meks_{{name}}") for name in names]

"""


@pytest.fixture
def says(programs_python, tmp_path):
    """Return a function that runs code after the helpers and returns the JSON it prints."""
    run = partial(python_says, programs_python)
    return lambda code, *words: run(f"{HELPERS}{code}", tmp_path, *words)


TITAN = {"loss_metrics/global_avg_loss": 2.5, "loss_metrics/global_max_loss": 9, "mfu(%)": 25}
TITAN |= {"throughput(tps)": 100, "time_metrics/end_to_end(s)": 0.75}
TITAN |= {"time_metrics/data_loading(s)": 0.125}
NAMES = """
written, names = json.loads(sys.argv[2]), json.loads(sys.argv[3])
make = lambda step, after: record(step, written, after, tensors=sys.argv[4] == "tensors")
path(9).write_bytes(make(6, 10) + record(7, {"image": 1}, 12) + make(8, 18))
print(json.dumps(told(*names)))
"""


@pytest.mark.parametrize(
    ("form", "written", "expected"),
    [
        (
            "scalars",
            '{"train/loss": 2.5, "train/grad_norm": 0.5, "train/epoch": 1}',
            {"grad_norm": 0.5, "step_seconds": 4, "mfu_ratio": None},
        ),
        (
            "scalars",
            str(TITAN).replace("'", '"'),
            {"tokens_per_second": 800, "mfu_ratio": 0.25, "step_seconds": 0.75}
            | {"data_wait_seconds": 0.125},
        ),
        ("tensors", '{"train_loss": 2.5, "val_loss": 9}', {"step_seconds": 4}),
    ],
    ids=["transformers", "torchtitan", "Lightning, as tensors"],
)
def test_names_of_known_programs_are_told(says, form, written, expected):
    """Each of them has its own; what none of them is known by is left."""
    expected |= {"step": 8, "loss": 2.5, "last_step_timestamp_seconds": BEGAN + 18}
    # The usual writer keeps events to itself for two minutes.
    expected |= {"silent_limit_seconds": 240}
    names = str([*expected]).replace("'", '"')
    assert says(NAMES, written, names, form) == [*expected.values()]


HALF = """
first, second, third = (record(step, {"loss": step}, step) for step in (1, 2, 3))
found = []
for seen in (first + second[:-9], first + second, first + second + third):
    path(9).write_bytes(seen)
    found += told("step")
print(json.dumps(found))
"""


def test_a_record_that_is_not_whole_is_waited_for(says):
    """One look sees half of it."""
    assert says(HALF) == [1, 2, 3]


GONE = """
path(9).write_bytes(record(1, {"loss": 1}) + record(2, {"loss": 1}))
found = told("step")
path(9).unlink()
path(20).write_bytes(record(3, {"loss": 1}) + record(4, {"loss": 1}))
print(json.dumps(found + told("step") + told("step", looks=6)))
"""


def test_a_file_that_is_gone_is_dropped(says):
    """TensorBoard raises an error of its own then; what is written elsewhere is found later."""
    assert says(GONE) == [2, 2, 4]


NEWEST = """
path(-1).write_bytes(record(90, {"loss": 1}))
found = told("step")
path(9).write_bytes(record(50, {"loss": 2}))
path(20).write_bytes(record(70, {"eval/loss": 1}))
found += told("step", looks=6)
path(30).write_bytes(record(40, {"loss": 2}))
found += told("step", looks=6)
print(json.dumps(found))
"""


def test_the_newest_file_with_a_loss_counts(says):
    """Not one of a run before, nor of an evaluation; each that starts over does, later."""
    assert says(NEWEST) == [None, 50, 40]


LOG = """
written = record(9, {"loss": 7}) + record(10, {"loss": 7})
path(9).write_bytes(written)
exporter.see(b"step 10/100 | loss 2.50000 | lr 1.000e-05 | 6,400 tokens/s | 2.000 s\\n")
found = told("grad_norm")
path(9).write_bytes(written + record(10, {"grad_norm": 0.5}))
print(json.dumps(found + told("step", "loss", "grad_norm", "silent_limit_seconds")))
"""


def test_what_the_log_says_wins(says):
    """Its step is there at once; what its lines leave out is known from the file."""
    assert says(LOG) == [None, 10, 2.5, 0.5, 120]
