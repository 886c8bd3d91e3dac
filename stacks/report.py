"""What the CDK's own validation says, which compares templates with CloudFormation's schemas."""

import json
from pathlib import Path

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding


def refused_by_schema(outdir: Path) -> list[Finding]:
    """Return what CloudFormation's schemas refuse, from the report that stays beside the templates.

    One value of the cluster file may be on every resource, and is told once.
    """
    report = json.loads((outdir / "validation-report.json").read_text())
    found: dict[str, Finding] = {}
    for plugin in report["pluginReports"]:
        for violation in plugin["violations"]:
            for construct in violation["violatingConstructs"]:
                resource = construct.get("cloudFormationResource", {})
                places = resource.get("propertyPaths") or ["Properties"]
                path = ("Resources", resource.get("logicalId", "?"), *places[0].split("."))
                what = f"CloudFormation's schema refuses it: {violation['description']}"
                finding = Finding(Code.PROPERTY, path, what, "change the value it comes from")
                file = str(outdir / resource.get("templatePath", ""))
                # One value of the cluster file may be on every resource.
                found.setdefault(violation["description"], finding.at(file, 0))
    return list(found.values())
