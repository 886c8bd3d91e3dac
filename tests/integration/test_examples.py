"""Every example rendered, and what its page says of its cost."""

import re
from datetime import UTC, datetime

import pytest
from cfnlint import ManualArgs, api

from megatron_eks.guards.check import findings_for_manifests, findings_for_templates
from megatron_eks.plan.cost import cluster_cost
from megatron_eks.project import ROOT, load_project
from tests import examples
from tests.emitted import emitted
from tests.stacks.synthesis import ACCEPTED

# Documentation values, and what no outputs.json says before the first deployment.
EXPECTED = {"MEKS-0212", "MEKS-0009"}


# cfn-lint takes half a minute of processor time for all of them.
@pytest.mark.tools
@pytest.mark.parametrize("name", examples.NAMES)
def test_an_example_is_rendered_without_a_finding_of_its_own(name):
    """Templates and manifests pass our guards, and nothing but placeholders is warned of."""
    made = emitted(name)
    found = [
        *made.project.warnings,
        *made.project.preview,
        *findings_for_templates(made.templates),
        *findings_for_manifests(made.manifests),
    ]
    assert {each.code for each in found} <= EXPECTED
    # E3628 does not know each region's newest instance types.
    regions = [made.project.cluster.region]
    config = ManualArgs(ignore_checks=[*ACCEPTED, "E3628"], regions=regions)
    for template in made.templates.values():
        assert api.lint(template, config=config) == []
    folders = [file.split("/") for file in made.manifests]
    jobs = {file.stem for file in (ROOT / "examples" / name / "jobs").iterdir()}
    assert {file for folder, file in folders if folder == "jobs"} == jobs


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
        assert f"{hourly:,.2f} USD an hour" in page
    else:
        assert hourly is not None
        assert shown == [round(hourly)]
