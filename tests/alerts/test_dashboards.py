"""Every query of every dashboard, asked of a real Prometheus that a real run has filled."""

import json
import math
import os
import subprocess
import time
import urllib.parse
import urllib.request
from dataclasses import asdict, replace
from functools import partial

import pytest
import yaml

from charts.platform.dcgm_exporter import COUNTERS
from megatron_eks.kubernetes.client import wait_for
from megatron_eks.localcloud.kubernetes import build
from megatron_eks.localcloud.kubernetes.processes import free_port
from megatron_eks.plan.cluster.alerts import rule_groups
from megatron_eks.programs import run_log
from megatron_eks.project import ROOT
from tests.alerts.played import LABELS, MINUTES, PLAN, play

pytestmark = [pytest.mark.oracle, pytest.mark.control_plane]

BOARDS = {
    file.stem: json.loads(file.read_text())
    for file in sorted((ROOT / "assets" / "dashboards").glob("*.json"))
}
QUERIES = [
    pytest.param(target, id=f"{name}-{panel['title']}-{target['refId']}")
    for name, board in BOARDS.items()
    for panel in board["panels"]
    for target in panel["targets"]
]
NODES = ("node-0", "node-1")
CHOSEN = {
    "$job": LABELS["job"],
    "$node": NODES[0],
    "$__range": f"{MINUTES}m",
    "$__rate_interval": "5m",
    "$usd": "2.5",
}


def value(name, node, minute):
    """Return what a GPU measures: the first node works, the second is idle and has no pod."""
    if name == "DCGM_FI_DEV_XID_ERRORS":
        return 79 if minute > MINUTES - 5 else 0
    return 90 + minute % 7 if node == NODES[0] else 0


def told_twice(file, _, text):
    """Return a minute's lines; write their steps as our trainers do, with the data wait."""
    with file.open("a") as own:
        for step in run_log.read(text.splitlines()).steps:
            own.write(json.dumps({**asdict(step), "data_seconds": 0.1}) + "\n")
    return text


def recorded(folder):
    """Yield labels and samples by minute: of a job, GPUs, nodes and the scheduler."""
    file = folder / "metrics.jsonl"
    plan = replace(PLAN, metrics_file=str(file))
    for each in play(folder, line=partial(told_twice, file), plan=plan):
        name, labels = each["series"].rstrip("}").split("{")
        node = NODES[int(labels[-2])]
        samples = enumerate(each["values"].split())
        yield f'{name}{{{labels},node="{node}"}}', [(at, of) for at, of in samples if of != "_"]
    minutes = range(MINUTES)
    for node in NODES:
        pod = f',namespace="{LABELS["namespace"]}",pod="tiny-0"' if node == NODES[0] else ""
        for gpu in range(2):
            labels = f'job="dcgm-exporter",Hostname="{node}",node="{node}",gpu="{gpu}"{pod}'
            for name, _, _ in COUNTERS:
                yield f"{name}{{{labels}}}", [(at, value(name, node, at)) for at in minutes]
        kubelet = f'{{job="kubelet",node="{node}"}}'
        yield f"node_cpu_usage_seconds_total{kubelet}", [(at, 90 * at) for at in minutes]
        yield f"node_memory_working_set_bytes{kubelet}", [(at, 10**10) for at in minutes]
    for team, used in (("nlp", 24), ("vision", 8)):
        queue = f'job="kueue",cluster_queue="{team}"'
        yield f'kueue_pending_workloads{{{queue},status="active"}}', [(at, 1) for at in minutes]
        for name, gpus in (("resource_usage", used), ("nominal_quota", 16)):
            for resource, number in (("nvidia.com/gpu", gpus), ("vpc.amazonaws.com/efa", 4)):
                of = f'{queue},flavor="p4d",resource="{resource}"'
                yield f"kueue_cluster_queue_{name}{{{of}}}", [(at, number) for at in minutes]
    pending = 'scheduler_pending_pods{job="kube-scheduler",queue="unschedulable"}'
    yield pending, [(at, 2) for at in minutes]


@pytest.fixture(scope="module")
def ask(promtool, tmp_path_factory):
    """Return what asks a Prometheus with two hours of series, whose rules have begun to fire."""
    folder = tmp_path_factory.mktemp("prometheus")
    end = time.time() - 30
    lines = [
        f"{series} {sample} {end - 60 * (MINUTES - 1 - minute):.3f}\n"
        for series, samples in recorded(folder)
        for minute, sample in samples
    ]
    (folder / "series.txt").write_text("".join(lines) + "# EOF\n")
    blocks = [promtool, "tsdb", "create-blocks-from", "openmetrics", "series.txt", "data"]
    subprocess.run(blocks, cwd=folder, check=True, capture_output=True)  # noqa: S603 -- promtool
    (folder / "rules.yaml").write_text(yaml.safe_dump(rule_groups()))
    settings = {"global": {"evaluation_interval": "1s"}, "rule_files": ["rules.yaml"]}
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(settings))
    port = free_port()
    program = build.programs(os.environ, print)[build.PROMETHEUS]
    command = [str(program), "--config.file=prometheus.yaml", "--storage.tsdb.path=data"]
    command.append(f"--web.listen-address=127.0.0.1:{port}")

    def answer(query, **more):
        words = urllib.parse.urlencode({"query": query, **more})
        path = "query_range" if "step" in more else "query"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}?{words}") as found:
            return json.load(found)["data"]["result"]

    def asked(target):
        query = target["expr"]
        for name, chosen in CHOSEN.items():
            query = query.replace(name, chosen)
        assert "$" not in query
        if target.get("instant"):
            return [[each["value"]] for each in answer(query, time=end)]
        now = time.time()
        at = {"start": now - 60 * (MINUTES - 2), "end": now, "step": 15}
        return [each["values"] for each in answer(query, **at)]

    def firing():
        try:
            return answer('ALERTS{alertstate="firing"}')
        except OSError:
            return []

    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)  # noqa: S603 -- ours
        try:
            wait_for("an alert", firing, 60)
            yield asked
        finally:
            process.terminate()
            process.wait()


@pytest.mark.parametrize("target", QUERIES)
def test_a_query_returns_data(ask, target):
    """Numbers, of at least one series."""
    found = ask(target)
    assert found
    for values in found:
        assert all(math.isfinite(float(number)) for _, number in values)


@pytest.mark.parametrize(
    ("board", "title", "expected"),
    [
        ("cluster", "Nodes of $cluster", [2, 2]),
        ("cluster", "GPUs", [2, 2]),
        ("teams", "GPUs in use beside the share, by team", [24, 16]),
        ("money", "GPU nodes, in USD an hour", [5, 5]),
        ("money", "Pods with GPUs, in USD an hour", [5]),
        ("money", "GPU nodes, in USD", [20]),
        ("money", "Idle GPUs, in USD", [10]),
    ],
)
def test_sums_are_right(ask, board, title, expected):
    """Two nodes of two GPUs at 2.50 USD an hour, for two hours, one of them idle."""
    (panel,) = (each for each in BOARDS[board]["panels"] if each["title"] == title)
    samples = [ask(target)[0] for target in panel["targets"]]
    found = [float(each[len(each) // 2][1]) for each in samples]
    assert found == pytest.approx(expected, rel=0.02)
