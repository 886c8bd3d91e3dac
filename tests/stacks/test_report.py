"""What CloudFormation's schemas refuse is a finding, not a traceback of the CDK."""

import json
from pathlib import Path

from megatron_eks.stacks.compose import refused_by_schema


def test_a_value_on_many_resources_is_told_once(tmp_path: Path) -> None:
    """The CDK names every resource; one value of the cluster file stands behind all of them."""
    constructs = [
        {
            "constructPath": f"demo-Images/{name}/Repository",
            "cloudFormationResource": {
                "templatePath": "demo-Images.template.json",
                "logicalId": f"{name}Repository",
                "propertyPaths": ["Properties.Tags.0.Value"],
            },
        }
        for name in ("Megatron", "Fsdp")
    ]
    violation = {
        "ruleName": "F3033",
        "description": "Tags.0.Value: length 0 is below minimum 1",
        "violatingConstructs": constructs,
    }
    report = {"pluginReports": [{"violations": [violation]}]}
    (tmp_path / "validation-report.json").write_text(json.dumps(report))
    (only,) = refused_by_schema(tmp_path)
    assert str(only) == (
        f"error MEKS-0560 {tmp_path}/demo-Images.template.json "
        "Resources.MegatronRepository.Properties.Tags.0.Value: CloudFormation's schema refuses it: "
        "Tags.0.Value: length 0 is below minimum 1 - change the value it comes from"
    )
