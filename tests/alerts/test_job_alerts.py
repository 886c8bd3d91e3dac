"""The rules over what jobs tell, on a real run as the exporter tells it: see played.py."""

import re

import pytest

from megatron_eks.plan.cluster.alerts import ALERTS as EVERY
from megatron_eks.plan.cluster.alerts import JOB_ALERTS
from megatron_eks.plan.cluster.observability import DCGM_EXPORTER, QUEUES, TRAINING
from megatron_eks.programs.exporter.series import SERIES
from tests.alerts.played import LABELS, MINUTES, play
from tests.alerts.tried import firing, named, run

pytestmark = pytest.mark.oracle

ALERTS = {alert.name: alert for alert in JOB_ALERTS}
JOB = {"namespace": LABELS["namespace"], "job": LABELS["job"]}
FIRST = {**LABELS, "pod": "tiny-0"}


def second_hour(change):
    """Return what changes the lines of the second hour."""
    return lambda minute, text: change(text) if minute >= 60 else text


def losses(change):
    """Return what changes the losses of the second hour."""
    pattern = re.compile(r"(loss )([\d.]+)")
    return second_hour(
        lambda text: pattern.sub(lambda found: found[1] + change(float(found[2])), text)
    )


def slower(text):
    """Return a step's line with twice its time."""
    pattern = re.compile(r"([\d.]+) s(?= \||$)", re.MULTILINE)
    return pattern.sub(lambda found: f"{2 * float(found[1]):.3f} s", text)


def without_saves(text):
    """Return a minute without the line of a save."""
    return "".join(line for line in text.splitlines(keepends=True) if "saved" not in line)


def test_a_healthy_run_is_told_of_by_nobody(promtool, tmp_path):
    """Not while it starts, saves or validates, though a pod waits for its node at first."""
    waiting = 'scheduler_pending_pods{job="kube-scheduler",queue="unschedulable"}'
    recorded = [*play(tmp_path), {"series": waiting, "values": f"2x20 0x{MINUTES}"}]
    firing(promtool, tmp_path, recorded, {at: [] for at in range(MINUTES)})


@pytest.mark.parametrize(
    ("name", "at", "labels", "played"),
    [
        ("NoStep", 75, FIRST, {"line": second_hour(lambda _: "")}),
        ("NoStep", 25, FIRST, {"line": lambda *_: ""}),
        ("SlowerThanPlanned", 95, FIRST, {"line": second_hour(slower)}),
        ("LossNotFinite", 70, FIRST, {"line": losses(lambda _: "nan")}),
        ("LossRising", 110, FIRST, {"line": losses(lambda loss: f"{2 * loss:.4f}")}),
        ("CheckpointOld", 118, JOB, {"line": second_hour(without_saves)}),
        ("GoodputLow", 80, FIRST, {"seen_every": 2}),
        ("JobRestarted", 70, JOB, {"restart": 60}),
        ("JobFinished", 64, JOB, {"until": 60, "finishes": True}),
        ("JobEndedEarly", 70, JOB, {"until": 60}),
    ],
)
def test_trouble_is_told_and_nothing_else(promtool, tmp_path, name, at, labels, played):  # noqa: PLR0917 -- a table's columns
    """Once it has lasted, of the job that has it; before it began nobody was told."""
    before = 0 if at < 60 else 20 if name == "GoodputLow" else 58
    firing(promtool, tmp_path, play(tmp_path, **played), {before: [], at: [(ALERTS[name], labels)]})


def test_efa_that_carries_nothing_while_steps_are_made(promtool, tmp_path):
    """Of each pod; a run that stands still is another alarm's."""
    silent = [(ALERTS["EfaSilent"], {**JOB, "pod": f"tiny-{node}"}) for node in (0, 1)]
    firing(promtool, tmp_path, play(tmp_path, efa_until=60), {58: [], 80: silent})


def test_what_the_scraper_itself_knows(promtool, tmp_path):
    """A pod that waits for a node for too long, and one that does not answer."""
    waiting = {"job": "kube-scheduler", "queue": "unschedulable"}
    deaf = {"job": TRAINING, "pod": "tiny-1"}
    recorded = [
        {"series": named("scheduler_pending_pods", waiting), "values": f"0x10 2x{MINUTES}"},
        {"series": named("up", deaf), "values": f"1x60 0x{MINUTES}"},
    ]
    pending, missing = ALERTS["PodsPending"], ALERTS["JobMetricsMissing"]
    late = [(pending, waiting), (missing, deaf)]
    firing(promtool, tmp_path, recorded, {40: [], 42: [(pending, waiting)], 80: late})


def test_a_queue_of_which_nobody_starts(promtool, tmp_path):
    """For four hours, though jobs wait; where some start, those that wait are in their turn."""
    recorded = [
        {"series": named(f"kueue_{name}", {"cluster_queue": team, **more}), "values": values}
        for team, admitted in (("nlp", "0x400"), ("vision", "0+1x400"))
        for name, more, values in (
            ("pending_workloads", {"status": "active"}, "0x10 1x400"),
            ("pending_workloads", {"status": "inadmissible"}, "0x10 2x400"),
            ("admitted_workloads_total", {}, admitted),
        )
    ]
    alert = ALERTS["QueueStands"]
    stands = (alert, {"cluster_queue": "nlp"})
    firing(promtool, tmp_path, recorded, {245: [], 255: [stands]})
    summary = (
        "3 jobs wait in the queue of team nlp, and none of them has started for 4 hours",
        "meks queue says why each waits and when it is likely to start; meks scale brings nodes",
    )
    expected = {
        "exp_labels": {"cluster_queue": "nlp", "severity": "ticket"},
        "exp_annotations": dict(zip(("summary", "next"), summary, strict=True)),
    }
    tests = [{"eval_time": "255m", "alertname": alert.name, "exp_alerts": [expected]}]
    run(promtool, tmp_path, recorded, tests)


def test_a_message_says_which_job_for_how_long_and_what_to_do(promtool, tmp_path):
    """In words of people, with the command."""
    alert = ALERTS["NoStep"]
    expected = {
        "exp_labels": {**FIRST, "severity": "page"},
        "exp_annotations": {
            "summary": "job tiny has made no step for 16m 0s",
            "next": "meks status tiny, then meks logs tiny --explain",
        },
    }
    recorded = play(tmp_path, line=second_hour(lambda _: ""))
    tests = [{"eval_time": "75m", "alertname": alert.name, "exp_alerts": [expected]}]
    run(promtool, tmp_path, recorded, tests)


def test_each_series_that_rules_ask_for_is_told():
    """A name that nobody exports would never fire."""
    asked = {name for alert in JOB_ALERTS for name in re.findall(r"meks_(\w+)", alert.query)}
    assert asked <= SERIES.keys()
    jobs = (re.findall(r'job=~?"([^"]+)', alert.query) for alert in EVERY)
    scraped = {name for found in jobs for each in found for name in each.split("|")}
    assert scraped == {DCGM_EXPORTER, TRAINING, QUEUES}
