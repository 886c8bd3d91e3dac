"""How long synthesis takes, against an empty app with the same imports."""

import json
import sys
import tempfile
from pathlib import Path

from benchmarks.timing import ROOT, Row, interleaved, verdict

RUNS = 5
JOBS = 500

SECONDS_A_RESOURCE = 0.008
RATIO = 1.4
MILLISECONDS_A_JOB = 7
SHARE_OF_GUARDS = 1.10

# An app of nothing: what Python, jsii and Node cost whoever uses them.
EMPTY_CDK = """\
import aws_cdk as cdk
cdk.App(outdir={out!r}, analytics_reporting=False).synth()
"""
ONE_OBJECT = """\
from megatron_eks import node
node.use_bundled_node()
import cdk8s, os
from megatron_eks.charts import composition
from cdk8s_plus_27 import k8s
app = cdk8s.App(outdir=os.environ.get("CDK8S_OUTDIR"))
chart = cdk8s.Chart(app, "one")
k8s.KubeNamespace(chart, "one", metadata=k8s.ObjectMeta(name="one"))
app.synth()
"""
# An entry point as it is, but that nothing is judged.
WITHOUT_GUARDS = """\
import runpy, sys
from megatron_eks.guards import check
check.findings_for_templates = check.findings_for_manifests = lambda _: []
sys.argv = [{program!r}]
runpy.{run}({program!r}, run_name="__main__")
"""


def rows() -> list[Row]:
    """Measure, and return what, how much, the bar, and whether it holds."""
    with tempfile.TemporaryDirectory() as folder:
        return [*_cdk(Path(folder)), *_cdk8s(Path(folder)), *_guards(Path(folder))]


def _guards(folder: Path) -> list[Row]:
    """Compare both entry points with themselves without guards."""
    env = {
        "PYTHONPATH": str(ROOT),
        "CDK_VALIDATION": "false",
        "CDK_OUTDIR": str(folder / "judged.cdk"),
        "CDK8S_OUTDIR": str(folder / "judged.dist"),
    }
    found = []
    for name, command, run in (
        ("app.py", ["app.py"], "run_path"),
        ("charts", ["-m", "charts"], "run_module"),
    ):
        without = folder / f"without-guards-{name}.py"
        without.write_text(WITHOUT_GUARDS.format(run=run, program=name))
        medians = interleaved(
            {"with": [sys.executable, *command], "without": [sys.executable, str(without)]},
            RUNS,
            env,
        )
        ratio = medians["with"] / medians["without"]
        found.append(
            (
                f"guards, {name}",
                f"{medians['with']:.2f} s ({medians['without']:.2f} s without)",
                f"ratio {ratio:.2f}, at most {SHARE_OF_GUARDS:.2f}",
                verdict(holds=ratio <= SHARE_OF_GUARDS),
            )
        )
    return found


def _cdk(folder: Path) -> list[Row]:
    out = str(folder / "cdk.out")
    empty = folder / "empty.py"
    empty.write_text(EMPTY_CDK.format(out=str(folder / "empty.out")))
    medians = interleaved(
        {"empty": [sys.executable, str(empty)], "app": [sys.executable, "app.py"]},
        RUNS,
        {"CDK_VALIDATION": "false", "CDK_OUTDIR": out, "PYTHONPATH": str(ROOT)},
    )
    templates = Path(out).glob("*.template.json")
    resources = sum(len(json.loads(path.read_text())["Resources"]) for path in templates)
    bar = medians["empty"] + SECONDS_A_RESOURCE * resources
    found = f"{medians['app']:.2f} s (empty app {medians['empty']:.2f} s)"
    share = f"{medians['app'] / bar:.2f} of empty + 8 ms x {resources} resources"
    return [("python app.py", found, share, verdict(holds=medians["app"] <= bar))]


def _cdk8s(folder: Path) -> list[Row]:
    one = folder / "one.py"
    one.write_text(ONE_OBJECT)
    single, many = _project(folder / "single", 1), _project(folder / "many", JOBS)
    cli = [str(ROOT / ".venv/bin/cdk8s"), "synth", "--check-upgrade=false"]
    medians = interleaved(
        {
            "one object": [*cli, "--app", f"{sys.executable} {one}", "-o", str(folder / "one.out")],
            "default": [*cli, "-o", str(folder / "dist")],
        },
        RUNS,
        {"PYTHONPATH": str(ROOT)},
    )
    charts = {"jobs": [sys.executable, "-m", "charts"]}
    env = {"PYTHONPATH": str(ROOT), "CDK8S_OUTDIR": str(folder / "d")}
    few = interleaved(charts, 3, {**env, "CLUSTER_CONFIG": str(single)})["jobs"]
    lots = interleaved(charts, 3, {**env, "CLUSTER_CONFIG": str(many)})["jobs"]
    ratio = medians["default"] / medians["one object"]
    each = (lots - few) / (JOBS - 1) * 1000
    found = f"{medians['default']:.2f} s (one object {medians['one object']:.2f} s)"
    return [
        (
            "cdk8s synth",
            found,
            f"ratio {ratio:.2f}, at most {RATIO}",
            verdict(holds=ratio <= RATIO),
        ),
        (
            f"{JOBS} jobs",
            f"{lots:.2f} s (one job {few:.2f} s)",
            f"{each:.1f} ms each, at most {MILLISECONDS_A_JOB}",
            verdict(holds=each <= MILLISECONDS_A_JOB),
        ),
    ]


def _project(folder: Path, count: int) -> Path:
    """Write the default cluster with its first job so many times; return the cluster's file."""
    (folder / "jobs").mkdir(parents=True)
    cluster = folder / "cluster.yaml"
    cluster.write_text((ROOT / "cluster.yaml").read_text())
    job = (ROOT / "jobs" / "megatron-cpt-techpulse.yaml").read_text()
    for index in range(count):
        text = job.replace("name: megatron-cpt-techpulse", f"name: job-{index}")
        (folder / "jobs" / f"{index}.yaml").write_text(text)
    return cluster
