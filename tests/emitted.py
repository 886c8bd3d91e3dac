"""Everything that the stacks and charts write for every kind of cluster, rendered in process.

The clusters are the one of a fresh checkout, that one after its deployment, the examples, and the
variations. Nothing depends on the day: the plans are made for one that is written here.
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import cache, partial
from pathlib import Path

import cdk8s
import yaml

from megatron_eks.charts import composition
from megatron_eks.config.errors import Level
from megatron_eks.project import ROOT, Project, check_files, job_files, load_project
from tests import examples
from tests.charts.rendered import DEPLOYED
from tests.stacks.synthesis import app_of, cluster_file, write_sources
from tests.variations import VARIATIONS

TODAY = date(2026, 11, 28)
"""The day of all plans: no Capacity Block of an example has ended."""

DEFAULT = "default"
AFTER_DEPLOYMENT = "deployed"
CLUSTERS = (DEFAULT, AFTER_DEPLOYMENT, *examples.NAMES, *VARIATIONS)
WITH_FILES = (DEFAULT, *examples.NAMES)
"""Clusters whose files are committed."""


@dataclass(frozen=True)
class Emitted:
    """The texts of one cluster's templates and manifests."""

    project: Project
    templates: Mapping[str, str]
    """By stack, without the cluster's name: `Network`."""
    manifests: Mapping[str, str]
    """By folder and chart: `platform/20-storage`."""


@cache
def emitted(cluster: str) -> Emitted:
    """Render one cluster, once in a process."""
    with files(cluster) as folder, tempfile.TemporaryDirectory() as scratch:
        project = load_project(folder / "cluster.yaml", TODAY)
        return Emitted(
            project,
            _templates(project, Path(scratch)),
            write_manifests(project, Path(scratch)),
        )


@contextmanager
def files(cluster: str) -> Iterator[Path]:
    """Lend the folder with the files of a cluster."""
    if cluster == DEFAULT:
        yield ROOT
    elif cluster in examples.NAMES:
        yield ROOT / "examples" / cluster
    else:
        with tempfile.TemporaryDirectory() as folder:
            value = cluster_file()
            VARIATIONS.get(cluster, lambda _: None)(value)
            (Path(folder) / "cluster.yaml").write_text(yaml.safe_dump(value))
            shutil.copytree(ROOT / "jobs", Path(folder) / "jobs")
            _remove_refused_jobs(Path(folder) / "cluster.yaml")
            if cluster == AFTER_DEPLOYMENT:
                (Path(folder) / "outputs.json").write_text(json.dumps(DEPLOYED))
            yield Path(folder)


def _remove_refused_jobs(cluster_file: Path) -> None:
    """Delete the jobs that a cluster cannot run, such as downloads without a way out."""
    findings = check_files(cluster_file, job_files(cluster_file), TODAY).findings
    for file in {each.file for each in findings if each.level is Level.ERROR}:
        Path(file).unlink()


def _templates(project: Project, scratch: Path) -> dict[str, str]:
    # The images' sources are not the real ones, so that a program's change is none of a template.
    outdir = scratch / "cdk.out"
    app_of(project.cluster, write_sources(scratch / "assets"), outdir).synth()
    prefix, suffix = f"{project.cluster.name}-", ".template.json"
    return {
        file.name.removeprefix(prefix).removesuffix(suffix): file.read_text()
        for file in sorted(outdir.glob(f"*{suffix}"))
    }


def write_manifests(project: Project, scratch: Path) -> dict[str, str]:
    """Render into folders as `make synth` does; return the texts by folder and chart."""
    plan = project.cluster
    builds: Mapping[str, Callable[[cdk8s.App], composition.Charts]] = {
        "platform": partial(composition.build_platform, plan=plan, outputs=project.outputs),
        "validation": partial(composition.build_validation, plan=plan, jobs=project.validation),
        "jobs": partial(composition.build_jobs, plan=plan, jobs=project.jobs),
    }
    made: dict[str, str] = {}
    for name, build in builds.items():
        folder = scratch / name
        app = cdk8s.App(outdir=str(folder), yaml_output_type=cdk8s.YamlOutputType.FILE_PER_CHART)
        charts = build(app)
        if charts:
            app.synth()
        made |= {f"{name}/{each}": (folder / f"{each}.k8s.yaml").read_text() for each in charts}
    return made
