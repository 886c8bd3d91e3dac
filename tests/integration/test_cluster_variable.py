"""Another cluster file, named by the environment, brings its own jobs."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from megatron_eks.config.errors import ConfigError
from megatron_eks.folders import refuse_folder_of_another
from megatron_eks.project import load_project

ROOT = Path(__file__).parents[2]


def test_cluster_config_names_another_project(tmp_path):
    """`CLUSTER_CONFIG` moves cluster, jobs and outputs together."""
    (tmp_path / "jobs").mkdir()
    text = (ROOT / "cluster.yaml").read_text().replace("name: techpulse", "name: other")
    (tmp_path / "cluster.yaml").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "charts"],
        cwd=ROOT,
        env={
            **os.environ,
            "CLUSTER_CONFIG": str(tmp_path / "cluster.yaml"),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert "MEKS-0009" in done.stderr
    assert list((tmp_path / "dist" / "jobs").glob("*")) == []
    storage = (tmp_path / "dist" / "platform" / "20-storage.k8s.yaml").read_text()
    assert "megatron-eks/cluster: other" in storage


def test_two_clusters_in_one_folder_are_refused_by_name(tmp_path):
    """Before anything is written; a second file of the same cluster is a copy of it."""
    text = (ROOT / "cluster.yaml").read_text()
    for name in ("cluster.yaml", "old.yaml"):
        (tmp_path / name).write_text(text)
    file = tmp_path / "cluster.yaml"
    project = load_project(file, datetime.now(tz=UTC).date())
    refuse_folder_of_another(project)
    (tmp_path / "b.yml").write_text(text.replace("name: techpulse", "name: 'b'"))
    for output in (None, tmp_path / "dist"):
        with pytest.raises(ConfigError, match=r"MEKS-0010 .* cluster 'b', by .*b\.yml"):
            refuse_folder_of_another(project, output)
    # Somebody's own folder is in nobody's way.
    refuse_folder_of_another(project, tmp_path / "elsewhere" / "out")
    (tmp_path / "b.yml").unlink()
    other = tmp_path / "other"
    other.mkdir()
    (other / "cluster.yaml").write_text(text.replace("name: techpulse", "name: b"))
    with pytest.raises(ConfigError, match=r"add `--output .*cdk\.out`"):
        refuse_folder_of_another(project, other / "cdk.out")
