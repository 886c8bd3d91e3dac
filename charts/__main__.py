"""Entry point of cdk8s: `cdk8s synth`, or `python -m charts` without npm."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from megatron_eks import entry
from megatron_eks.config.errors import Finding
from megatron_eks.judge import Judge
from megatron_eks.project import Project

entry.prepare()
JUDGE = Judge("megatron_eks.rules.manifests:findings_for_manifests")

# ruff: noqa: E402 -- jsii starts Node on import, so the lines above come first
import cdk8s

from charts import composition

FOLDERS = ("platform", "validation", "jobs")

BATCH = 25
"""Jobs rendered at once: while Node writes one batch, the one before is judged."""

Build = Callable[[cdk8s.App], composition.Charts]


def render(project: Project) -> Iterable[Finding]:
    """Write the manifests by folder, and apply the rules to them."""
    outdir = Path(os.environ.get("CDK8S_OUTDIR") or "dist")
    stale = {file for name in FOLDERS for file in (outdir / name).glob("*.k8s.yaml")}
    for name, build in _batches(project):
        folder = outdir / name
        folder.mkdir(parents=True, exist_ok=True)  # a clearer error than Node's
        files_per_chart = cdk8s.YamlOutputType.FILE_PER_CHART
        app = cdk8s.App(outdir=str(folder), yaml_output_type=files_per_chart)
        files = [folder / f"{chart}.k8s.yaml" for chart in build(app)]
        app.synth()
        JUDGE.hand(files)
        stale.difference_update(files)
    for file in stale:
        file.unlink()
    return (*project.preview, *JUDGE.findings())


def _batches(project: Project) -> Iterator[tuple[str, Build]]:
    """Yield what to build into which folder: first what takes long to judge."""
    plan, jobs = project.cluster, project.jobs
    for start in range(0, len(jobs), BATCH):
        yield "jobs", partial(composition.build_jobs, plan=plan, jobs=jobs[start : start + BATCH])
    yield "platform", lambda app: composition.build_platform(app, plan, project.outputs)
    yield "validation", lambda app: composition.build_validation(app, plan, project.validation)


if __name__ == "__main__":
    sys.exit(entry.run(render, "python -m charts"))
