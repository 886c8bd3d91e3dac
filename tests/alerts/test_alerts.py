"""The rules over GPU metrics, tried by promtool: silent on a good day, each told on its bad one."""

import pytest

from megatron_eks.plan.cluster.alerts import ALERTS, GPU_ALERTS
from megatron_eks.plan.cluster.observability import DCGM_EXPORTER
from tests.alerts.tried import firing, run

pytestmark = pytest.mark.oracle

NODES, GPUS = ("a", "b"), range(8)
MINUTES = 120


def series(name, values, **labels):
    """Return one series of one value a minute."""
    shown = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return {"series": f"{name}{{{shown}}}", "values": values}


def recording(**changed):
    """Return what two nodes of eight GPUs measure in two hours, with some series otherwise.

    GPU 3 of node a is the one with trouble. A program of GPU 0 has crashed with Xid 31 before.
    """
    good = {
        "DCGM_FI_DEV_XID_ERRORS": "0",
        "DCGM_FI_DEV_GPU_TEMP": "62",
        # Its power limit, which is usual.
        "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": "4",
        "DCGM_FI_DEV_ROW_REMAP_FAILURE": "0",
        "DCGM_FI_DEV_GPU_UTIL": "97",
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "0.9",
    }
    found = [
        series("up", f"1x{MINUTES}", job=DCGM_EXPORTER, instance=f"{node}:9400", node=node)
        for node in NODES
    ]
    for node in NODES:
        for gpu in GPUS:
            bad = changed if (node, gpu) == ("a", 3) else {}
            for name, value in good.items():
                usual = f"0x30 31x{MINUTES}" if (gpu, name) == (0, "DCGM_FI_DEV_XID_ERRORS") else ""
                values = bad.get(name) or usual or f"{value}x{MINUTES}"
                pod = {"namespace": "megatron-workshop", "pod": f"job-{node}"}
                found.append(series(name, values, gpu=gpu, Hostname=node, **pod))
    return found


def everywhere(name, values):
    """Return the good day with a metric of node a otherwise."""
    rest = [
        each
        for each in recording()
        if not (each["series"].startswith(name) and 'Hostname="a"' in each["series"])
    ]
    pod = {"namespace": "megatron-workshop", "pod": "job-a"}
    return rest + [series(name, values, gpu=gpu, Hostname="a", **pod) for gpu in GPUS]


GPU = {"gpu": "3", "Hostname": "a", "namespace": "megatron-workshop", "pod": "job-a"}
ONE = {"gpu": "3", "Hostname": "a"}
BAD = {
    "GpuError": (recording(DCGM_FI_DEV_XID_ERRORS=f"0x60 79x{MINUTES}"), 62, ONE),
    "GpuLost": (recording(DCGM_FI_DEV_GPU_TEMP="62x60 stale"), 75, {"Hostname": "a"}),
    "GpuMemoryFailing": (recording(DCGM_FI_DEV_ROW_REMAP_FAILURE=f"0x60 1x{MINUTES}"), 62, GPU),
    "GpuHot": (recording(DCGM_FI_DEV_GPU_TEMP=f"62x60 88x{MINUTES}"), 75, GPU),
    "JobIdle": (
        everywhere("DCGM_FI_PROF_GR_ENGINE_ACTIVE", f"0.9x60 0.01x{MINUTES}"),
        80,
        {"namespace": "megatron-workshop", "pod": "job-a"},
    ),
    "NodeIdle": (everywhere("DCGM_FI_DEV_GPU_UTIL", f"97x30 0x{MINUTES}"), 95, {"Hostname": "a"}),
    "GpuMetricsMissing": (
        [
            *(each for each in recording() if not each["series"].startswith("up")),
            series("up", f"1x60 0x{MINUTES}", job=DCGM_EXPORTER, instance="a:9400", node="a"),
        ],
        80,
        {"job": DCGM_EXPORTER, "instance": "a:9400", "node": "a"},
    ),
}


def test_a_good_day_is_silent(promtool, tmp_path):
    """No rule fires at any of many times, though a program has failed and its node warms up."""
    times = range(0, MINUTES, 10)
    tests = [
        {"eval_time": f"{at}m", "alertname": alert.name, "exp_alerts": []}
        for alert in ALERTS
        for at in times
    ]
    run(promtool, tmp_path, recording(DCGM_FI_DEV_GPU_TEMP=f"30x20 84x{MINUTES}"), tests)


@pytest.mark.parametrize("alert", GPU_ALERTS, ids=lambda alert: alert.name)
def test_trouble_is_told_where_it_is(promtool, tmp_path, alert):
    """It fires after its minutes, names the place and the next command, and others are silent."""
    recorded, at, labels = BAD[alert.name]
    shown = alert.summary
    for key, value in labels.items():
        shown = shown.replace(f"{{{{ $labels.{key} }}}}", value)
    value = {"GpuError": "79", "GpuLost": "7", "GpuHot": "88"}.get(alert.name, "")
    shown = shown.replace("{{ $value }}", value)
    expected = {
        "exp_labels": {**labels, "severity": alert.severity},
        "exp_annotations": {"summary": shown, "next": alert.remedy},
    }
    tests = [{"eval_time": f"{at}m", "alertname": alert.name, "exp_alerts": [expected]}]
    tests += [
        {"eval_time": f"{at}m", "alertname": other.name, "exp_alerts": []}
        for other in ALERTS
        if other is not alert
    ]
    run(promtool, tmp_path, recorded, tests)


@pytest.mark.parametrize(
    ("name", "values", "at", "told"),
    [
        # An exporter of today has no such series before the first error.
        ("DCGM_FI_DEV_XID_ERRORS", f"_x60 79x{MINUTES}", 62, "GpuError"),
        ("DCGM_FI_DEV_XID_ERRORS", f"_x60 31x{MINUTES}", 62, ""),
        ("DCGM_FI_DEV_XID_ERRORS", f"_x60 79x{MINUTES}", 75, ""),
        # Hardware slowdown by heat, at whatever temperature; and one by power.
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", f"4x60 72x{MINUTES}", 75, "GpuHot"),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", f"4x60 136x{MINUTES}", 75, ""),
    ],
)
def test_what_a_gpu_says_of_itself(promtool, tmp_path, name, values, at, told):  # noqa: PLR0917 -- a table's columns
    """The first error of its life, once, and that heat slows it down."""
    labels = GPU if told == "GpuHot" else ONE
    alarms = [(each, labels) for each in GPU_ALERTS if each.name == told]
    firing(promtool, tmp_path, recording(**{name: values}), {at: alarms})


def test_an_old_error_is_not_the_next_jobs(promtool, tmp_path):
    """A series gets the name of each pod that comes to the GPU."""
    rest = [each for each in recording() if "XID" not in each["series"]]
    pods = {"job-a": f"79x60 _x{MINUTES}", "next": f"_x60 79x{MINUTES}"}
    old = [
        series("DCGM_FI_DEV_XID_ERRORS", values, **ONE, namespace="megatron-workshop", pod=pod)
        for pod, values in pods.items()
    ]
    firing(promtool, tmp_path, rest + old, dict.fromkeys((30, 62, 75), ()))
