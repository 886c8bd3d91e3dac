"""Another cluster file, named by the environment, brings its own jobs."""

import os
import subprocess
import sys
from pathlib import Path

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
            "CDK8S_OUTDIR": str(tmp_path / "dist"),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert "MEKS-0009" in done.stderr
    assert list((tmp_path / "dist" / "jobs").glob("*")) == []
    storage = (tmp_path / "dist" / "platform" / "20-storage.k8s.yaml").read_text()
    assert "other" in storage
