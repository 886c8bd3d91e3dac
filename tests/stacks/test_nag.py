"""cdk-nag's AWS Solutions rules: what they report is mended, or accepted with a reason."""

import json

import aws_cdk as cdk
import cdk_nag
import pytest
from aws_cdk import aws_s3 as s3

from tests.stacks.synthesis import app_of, cluster_file, plan_of


def findings(app, outdir):
    """Synthesise with the rules on, and return what they report as (rule, construct)."""
    cdk.Validations.of(app).add_plugins(cdk_nag.AwsSolutionsChecks(app))
    try:
        app.synth()
    except RuntimeError as error:
        # A finding makes synthesis fail, and the report says more than the message.
        if not str(error).startswith("ValidationFailed"):
            raise
    reports = json.loads((outdir / "validation-report.json").read_text())["pluginReports"]
    return {
        (violation["ruleName"], construct["constructPath"])
        for report in reports
        for violation in report["violations"]
        for construct in violation["violatingConstructs"]
    }


def as_it_is(_cluster):
    """Change nothing."""


def private(cluster):
    """Close the endpoint."""
    cluster["access"].update(public_cidrs=[], private_route="vpn")


def larger(cluster):
    """Use whatever the file can add to a template."""
    cluster["network"] = {"nat_gateways": "per_zone", "interface_endpoints": ["ecr.api", "sts"]}
    cluster["storage"].update(retain=False)
    cluster["observability"] = {"enabled": True, "webhook_secret": "prod/alarms"}
    cluster["gpu_pools"].append(dict(cluster["gpu_pools"][0], name="second", scale="queue"))
    cluster["platform"] = {"kueue": True}


@pytest.mark.parametrize("edit", [as_it_is, private, larger])
def test_nothing_is_left_unanswered(sources, tmp_path, edit):
    """Acknowledgements stand beside the resource; a new finding needs one there, or a repair."""
    cluster = cluster_file()
    edit(cluster)
    app = app_of(plan_of(cluster), sources, tmp_path, validate=True)
    assert findings(app, tmp_path) == set()


def test_the_rules_do_run(tmp_path):
    """A plug-in that stays silent would make the test above pass for nothing."""
    app = cdk.App(outdir=str(tmp_path))
    s3.CfnBucket(cdk.Stack(app, "Stack"), "Careless")
    rules = {rule for rule, path in findings(app, tmp_path) if path == "Stack/Careless"}
    assert {"AwsSolutions-S1", "AwsSolutions-S10"} <= rules
