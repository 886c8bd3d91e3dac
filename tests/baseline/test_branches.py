"""Coverage is compared by package, and in processes with an environment of their own."""

import json
import subprocess
import sys

from tests.baseline import children
from tests.baseline.branches import Taken, less, of_packages


def test_a_package_of_which_less_is_taken_is_named():
    """A package may shrink, but its share of taken branches may not."""
    before = {"charts": Taken(branches=100, covered_branches=90), "gone": Taken(branches=1)}
    smaller = {"charts": Taken(branches=10, covered_branches=9)}
    worse = {"charts": Taken(branches=100, covered_branches=89)}
    assert not list(less(before, smaller))
    assert list(less(before, worse)) == ["charts: 89.0% of 100 branches, 90.0% of 100 before"]


def test_files_are_added_up_by_package(tmp_path):
    """What was to go when the baseline was taken is in no package."""
    summary = {"num_branches": 4, "covered_branches": 3, "num_statements": 9, "covered_lines": 8}
    files = [
        "app.py",
        "megatron_eks/plan/jobs/nccl.py",
        "megatron_eks/plan/jobs/job.py",
        "megatron_eks/rules/nodes.py",
        "benchmarks/report.py",
    ]
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"files": {file: {"summary": summary} for file in files}}))
    assert of_packages(report) == {
        "app.py": Taken(4, 3, 9, 8),
        "megatron_eks/plan": Taken(8, 6, 18, 16),
    }


def test_a_process_with_a_bare_environment_is_measured(monkeypatch):
    """What the test sets itself stays."""
    monkeypatch.setattr(subprocess.Popen, "__init__", subprocess.Popen.__init__)
    monkeypatch.setenv("COVERAGE_PROCESS_CONFIG", "")
    monkeypatch.setenv("PYTHONPATH", "/ours")
    children.pytest_configure()
    program = "import os; print(sorted(os.environ.items()))"
    done = subprocess.run(  # noqa: S603 -- our own program
        [sys.executable, "-c", program],
        env={"PYTHONPATH": "/own", "LC_ALL": "C"},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    assert done.stdout.strip() == str(
        [("COVERAGE_PROCESS_CONFIG", ""), ("LC_ALL", "C"), ("PYTHONPATH", "/own")]
    )
