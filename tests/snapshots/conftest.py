"""Runs both entry points once, as users do without npm, and hands out what they wrote."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import cdk8s
import pytest
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

ROOT = Path(__file__).parents[2]


class YamlExtension(SingleFileSnapshotExtension):
    """One YAML file a snapshot: shorter than JSON, and a changed property is a two-line diff."""

    file_extension = "yaml"
    _write_mode = WriteMode.TEXT

    def serialize(self, data: object, **_: object) -> str:
        """Write YAML as cdk8s does."""
        return data if isinstance(data, str) else cdk8s.Yaml.stringify(data)


@pytest.fixture
def snapshot(snapshot):
    """Compare with YAML files."""
    return snapshot.use_extension(YamlExtension)


def _run(folder: Path, *command: str, cluster: str = "cluster.yaml") -> Path:
    env = {**os.environ, "CDK_VALIDATION": "false", "CDK_OUTDIR": str(folder)}
    env["CLUSTER_CONFIG"] = cluster
    subprocess.run(  # noqa: S603 -- our own entry points
        [sys.executable, *command],
        cwd=ROOT,
        env={**env, "CDK8S_OUTDIR": str(folder)},
        check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture(scope="session")
def cloud_assembly(tmp_path_factory):
    """Synthesise the default cluster's templates."""
    return _run(tmp_path_factory.mktemp("cdk.out"), "app.py")


@pytest.fixture(scope="session")
def example_assembly(tmp_path_factory):
    """Synthesise the templates of an example, each once."""

    @cache
    def synthesised(name: str) -> Path:
        folder = tmp_path_factory.mktemp(f"cdk.out.{name}")
        return _run(folder, "app.py", cluster=f"examples/{name}/cluster.yaml")

    return synthesised


@pytest.fixture(scope="session")
def manifests(tmp_path_factory):
    """Synthesise the default cluster's manifests."""
    return _run(tmp_path_factory.mktemp("dist"), "-m", "charts")
