"""Entry point of cdk8s: `cdk8s synth`, or `python -m charts` without npm."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path

from megatron_eks import entry
from megatron_eks.config.errors import Finding
from megatron_eks.config.load import read_documents
from megatron_eks.project import Project

entry.prepare()
# Two hundred modules of rules load while the next import waits for Node to start.
JUDGE = ThreadPoolExecutor(max_workers=1)
JUDGE.submit(import_module, "megatron_eks.rules.manifests")

# ruff: noqa: E402 -- jsii starts Node on import, so the lines above come first
import cdk8s

from charts import composition

FOLDERS = ("platform", "validation", "jobs")

BATCH = 25
"""Jobs rendered at once: while Node writes one batch, Python judges the one before."""

Build = Callable[[cdk8s.App], composition.Charts]


def render(project: Project) -> Iterable[Finding]:
    """Write the manifests by folder, and apply the rules to them."""
    outdir = Path(os.environ.get("CDK8S_OUTDIR") or "dist")
    stale = {file for name in FOLDERS for file in (outdir / name).glob("*.k8s.yaml")}
    findings = []
    # The thread that talks to Node would wait for the other one's turn to end, 5 ms by default.
    sys.setswitchinterval(0.0002)
    for name, build in _batches(project):
        folder = outdir / name
        folder.mkdir(parents=True, exist_ok=True)  # a clearer error than Node's
        files_per_chart = cdk8s.YamlOutputType.FILE_PER_CHART
        app = cdk8s.App(outdir=str(folder), yaml_output_type=files_per_chart)
        files = [folder / f"{chart}.k8s.yaml" for chart in build(app)]
        app.synth()
        findings.append(JUDGE.submit(_judge, files))
        stale.difference_update(files)
    for file in stale:
        file.unlink()
    return (*project.preview, *(each for found in findings for each in found.result()))


def _batches(project: Project) -> Iterator[tuple[str, Build]]:
    """Yield what to build into which folder."""
    plan, jobs = project.cluster, project.jobs
    yield "platform", lambda app: composition.build_platform(app, plan, project.outputs)
    yield "validation", lambda app: composition.build_validation(app, plan, project.validation)
    for start in range(0, len(jobs), BATCH):
        yield "jobs", partial(composition.build_jobs, plan=plan, jobs=jobs[start : start + BATCH])


def _judge(files: Sequence[Path]) -> list[Finding]:
    from megatron_eks.rules.manifests import findings_in_manifests  # noqa: PLC0415 -- see JUDGE

    texts = {str(file): file.read_text(encoding="utf-8") for file in files}
    documents = [each for file, text in texts.items() for each in read_documents(text, file)]
    return findings_in_manifests(documents, texts.__getitem__)


if __name__ == "__main__":
    sys.exit(entry.run(render, "python -m charts"))
