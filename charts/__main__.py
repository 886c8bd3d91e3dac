"""Entry point of cdk8s: `cdk8s synth`, or `python -m charts` without npm."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from megatron_eks import entry
from megatron_eks.config.errors import Finding
from megatron_eks.config.load import Document
from megatron_eks.project import Project
from megatron_eks.rules.manifests import findings_in_manifests

entry.prepare()

# ruff: noqa: E402 -- jsii starts Node on import, so the lines above come first
import cdk8s

from charts import composition


def render(project: Project) -> Iterable[Finding]:
    """Write the manifests by folder, and apply the rules to them."""
    outdir = Path(os.environ.get("CDK8S_OUTDIR") or "dist")
    plan = project.cluster
    builders: dict[str, Callable[[cdk8s.App], composition.Charts]] = {
        "platform": lambda app: composition.build_platform(app, plan, project.outputs),
        "validation": lambda app: composition.build_validation(app, plan),
        "jobs": lambda app: composition.build_jobs(app, plan, project.jobs),
    }
    documents: list[Document] = []
    for name, build in builders.items():
        app = _app(outdir / name)
        documents += _write(app, build(app), outdir / name)
    findings = findings_in_manifests(documents, lambda file: Path(file).read_text(encoding="utf-8"))
    return (*project.preview, *findings)


def _app(folder: Path) -> cdk8s.App:
    return cdk8s.App(outdir=str(folder), yaml_output_type=cdk8s.YamlOutputType.FILE_PER_CHART)


def _write(app: cdk8s.App, charts: composition.Charts, folder: Path) -> Iterator[Document]:
    """Write one folder, delete what is no longer emitted, and return the objects.

    The objects come from memory: reading them back from YAML takes longer than making them.
    """
    before = set(folder.glob("*.k8s.yaml"))
    app.synth()
    for name, chart in charts.items():
        file = folder / f"{name}.k8s.yaml"
        before.discard(file)
        yield from (Document(str(file), value) for value in chart.to_json())
    for stale in before:
        stale.unlink()


if __name__ == "__main__":
    sys.exit(entry.run(render))
