"""Entry point of cdk8s: `cdk8s synth`, or `python -m charts` without npm."""

import gc
import os
import sys
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from pathlib import Path

gc.disable()  # a million objects of the imports below live until the end: nothing to look for

from megatron_eks import node

_cdk8s = node.load_in_background(partial(import_module, "cdk8s_plus_27.k8s"))

# ruff: noqa: E402 -- Node is started before the imports that take as long as its start
from megatron_eks import DEFAULT_CLUSTER, rendering
from megatron_eks.config.errors import Finding
from megatron_eks.guards.check import findings_for_manifests
from megatron_eks.project import MANIFESTS, Project

_cdk8s.join()

import cdk8s

from megatron_eks.charts import composition
from megatron_eks.charts.dashboards import write_dashboards, write_rules

# `output` in cdk8s.yaml. cdk8s removes it before it starts us: where it is a link, a refusal leaves
# the manifests as they were.
_LINK = ".cdk8s"

FOLDERS = ("platform", "validation", "jobs")

Build = Callable[[cdk8s.App], composition.Charts]


def render(project: Project, outdir: Path) -> Iterable[Finding]:
    """Write the manifests by folder, and apply the guards to them."""
    stale = {file for name in FOLDERS for file in (outdir / name).glob("*.k8s.yaml")}
    texts: dict[str, str] = {}
    for name, build in _builds(project).items():
        folder = outdir / name
        folder.mkdir(parents=True, exist_ok=True)  # a clearer error than Node's
        files_per_chart = cdk8s.YamlOutputType.FILE_PER_CHART
        app = cdk8s.App(outdir=str(folder), yaml_output_type=files_per_chart)
        files = [folder / f"{chart}.k8s.yaml" for chart in build(app)]
        app.synth()
        texts |= {str(file): file.read_text(encoding="utf-8") for file in files}
        stale.difference_update(files)
    for file in stale:
        file.unlink()
    write_dashboards(project.cluster, outdir / "dashboards")
    write_rules(project.cluster, outdir / "observability")
    return (*project.preview, *findings_for_manifests(texts))


def _builds(project: Project) -> dict[str, Build]:
    plan = project.cluster
    return {
        "platform": lambda app: composition.build_platform(app, plan, project.outputs),
        "validation": lambda app: composition.build_validation(app, plan, project.validation),
        "jobs": lambda app: composition.build_jobs(app, plan=plan, jobs=project.jobs),
    }


if __name__ == "__main__":
    is_linked = os.environ.get("CDK8S_OUTDIR") == _LINK
    if is_linked:
        del os.environ["CDK8S_OUTDIR"]
    status = rendering.run(render, "python -m charts", ("CDK8S_OUTDIR", MANIFESTS), code=True)
    if is_linked and not status:
        file = Path(os.environ.get("CLUSTER_CONFIG") or DEFAULT_CLUSTER)
        Path(_LINK).symlink_to(file.with_name(MANIFESTS).resolve())
    gc.freeze()  # or Python looks through all of them once more before it ends
    sys.exit(status)
