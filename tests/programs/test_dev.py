"""What keeps a pod of `meks dev`: GPUs that compute, as nvidia-smi says, or cannot be asked."""

import os

import pytest

from megatron_eks.programs.dev import gpu_used


@pytest.mark.parametrize(
    ("script", "used"),
    [
        ("echo 0; echo 0", False),
        ("echo 0; echo 37", True),
        # A driver that does not say it, and one that fails or is not there: the deadline remains.
        ("echo '[N/A]'", True),
        ("echo 0; exit 9", True),
        (None, True),
    ],
)
def test_gpus_that_compute_keep_the_pod(monkeypatch, tmp_path, script, used):
    """All of those that the pod has."""
    if script is not None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path), "/usr/bin", "/bin"]))
    assert gpu_used() is used
