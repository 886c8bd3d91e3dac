"""What our own programs print, run for real on this machine, and what `meks verify` makes of it."""

import os
import subprocess
import sys

from megatron_eks.ops.jobs.verdicts import Ended, verdict


def log_of(program, *arguments):
    """Return what a pod's log holds of a program, and how its pod ends."""
    done = subprocess.run(  # noqa: S603 -- our own program
        [sys.executable, "-m", f"megatron_eks.programs.{program}", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
        env={key: value for key, value in os.environ.items() if key != "RANK"},
    )
    return done.stdout, "Failed" if done.returncode else "Succeeded"


def test_a_machine_without_efa_is_told_with_its_remedy(tmp_path):
    """Over a recorded tree without devices."""
    for name in ("sys", "dev", "proc"):
        (tmp_path / name).mkdir()
    log, phase = log_of("efa_check", "--expect", "4", "--root", str(tmp_path))
    found = verdict(Ended("efa-check-p4d", phase, "", log))
    assert found.verdict == "failed"
    assert found.measured["expected"] == 4
    texts = [each.found for each in found.findings]
    assert any(text.startswith("EFA devices: 0 EFA devices are usable") for text in texts)
    assert all(each.remedy for each in found.findings)


def test_a_file_system_below_its_mark_is_told_once(tmp_path):
    """By the program, with its numbers."""
    arguments = ("--directory", str(tmp_path), "--size-gib", "0.01")
    log, phase = log_of("storage_bench", *arguments, "--processes", "1", "--pass-mb-s", "1e9")
    found = verdict(Ended("storage-p4d", phase, "", log))
    below = [each for each in found.findings if str(each.code) == "MEKS-0860"]
    assert len(below) == 1
    assert "the mark is 1e+09" in below[0].found
    rate = found.measured["write_mb_s"]
    assert isinstance(rate, float)
    assert rate > 0
