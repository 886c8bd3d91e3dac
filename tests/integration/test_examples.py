"""Every example through both entry points, and what its page says of its cost."""

import os
import re
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from cfnlint import ManualArgs, api

from megatron_eks.plan.cost import cluster_cost
from megatron_eks.project import ROOT, load_project
from tests import examples
from tests.stacks.test_cfn_lint import ACCEPTED

# Documentation values, and what no outputs.json says before the first deployment.
EXPECTED = {"MEKS-0212", "MEKS-0009"}


@pytest.mark.tools
@pytest.mark.parametrize("name", examples.NAMES)
def test_an_example_is_rendered_without_a_finding_of_its_own(name, tmp_path):
    """Templates and manifests pass our rules, and nothing but placeholders is warned of."""
    cluster = examples.copy(name, tmp_path)
    env = {
        **os.environ,
        "CLUSTER_CONFIG": str(cluster),
        "CDK_OUTDIR": str(tmp_path / "cdk.out"),
        "CDK8S_OUTDIR": str(tmp_path / "dist"),
        "CDK_VALIDATION": "false",
    }
    for command in (["app.py"], ["-m", "charts"]):
        done = subprocess.run(  # noqa: S603 -- our own entry points
            [sys.executable, *command],
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert set(re.findall(r"MEKS-\d{4}", done.stderr)) <= EXPECTED, done.stderr
    region = re.search(r"^region: (\S+)", cluster.read_text(), re.MULTILINE)
    assert region
    # E3628 does not know each region's newest instance types.
    config = ManualArgs(ignore_checks=[*ACCEPTED, "E3628"], regions=[region[1]])
    for template in (tmp_path / "cdk.out").glob("*.template.json"):
        assert api.lint(template.read_text(), config=config) == []
    jobs = {file.name.removesuffix(".k8s.yaml") for file in (tmp_path / "dist" / "jobs").iterdir()}
    assert jobs == {file.stem for file in (tmp_path / "jobs").iterdir()}


@pytest.mark.parametrize("name", examples.NAMES)
def test_its_page_says_what_it_costs(name, tmp_path):
    """The dollars an hour are those of the plan: with all nodes where their price is known."""
    cluster = examples.copy(name, tmp_path)
    project = load_project(cluster, datetime.now(tz=UTC).date())
    cost = cluster_cost(project.cluster)
    hourly = cost.full_usd_per_hour or cost.idle_usd_per_hour
    page = (tmp_path / "README.md").read_text()
    shown = [float(each.replace(",", "")) for each in re.findall(r"([\d,]+) USD an\s+hour", page)]
    if name == "g5":
        assert "Sum with all GPU nodes" in page
    else:
        assert hourly is not None
        assert shown == [round(hourly)]
