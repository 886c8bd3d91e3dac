"""Rule over keys of nodes' disks, which Auto Scaling must be able to use."""

import json
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.config.load import Json
from megatron_eks.rules.launch_templates import DATA, launch_templates
from megatron_eks.rules.policies import statements, words
from megatron_eks.rules.role_needs import has_action
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping

_ROLE = "AWSServiceRoleForAutoScaling"
_GRANT = "kms:CreateGrant"


def disks(templates: TemplateSet) -> Iterator[Finding]:
    """Require of the key of nodes' disks that Auto Scaling's role may use it.

    EC2 Auto Scaling User Guide, "Required AWS KMS key policy for use with encrypted volumes": the
    account's own IAM policies do not reach a service-linked role, and each instance ends with
    Client.InvalidKMSKey.InvalidState or Client.InternalError.
    """
    for template in launch_templates(templates):
        scaled = [
            each
            for each in templates.resources("AWS::AutoScaling::AutoScalingGroup")
            if template.resource.id in json.dumps(each.properties)
        ]
        if not template.node_groups and not scaled:
            continue
        judged: set[Resource] = set()
        for index, value in enumerate(items(template.data.get("BlockDeviceMappings")) or []):
            disk = mapping((mapping(value) or {}).get("Ebs")) or {}
            key = templates.target(disk.get("KmsKeyId"), template.resource.file)
            if key is None or key.type != "AWS::KMS::Key" or key in judged:
                continue
            judged.add(key)
            missing = _missing(key, templates)
            if missing:
                path = (DATA, "BlockDeviceMappings", index, "Ebs", "KmsKeyId")
                found = f"{key.id} does not let Auto Scaling {missing}: no node starts"
                remedy = f"name role/aws-service-role/autoscaling.amazonaws.com/{_ROLE} in its "
                remedy += "policy, for the use of the key and kms:CreateGrant"
                yield template.resource.find(Code.KEY_POLICY, path, found, remedy)


def _missing(key: Resource, templates: TemplateSet) -> str | None:
    """Say what a key's policy keeps from the role; None where it may have everything."""
    listed = statements(key.properties.get("KeyPolicy"))
    if listed is None:
        return None if not is_absent(key.properties.get("KeyPolicy")) else "use it"
    actions: set[str] = set()
    for body in listed:
        principal = body.get("Principal")
        aws = (mapping(principal) or {}).get("AWS", principal)
        named = [_known(each, key, templates) for each in (aws if isinstance(aws, list) else [aws])]
        written = json.dumps(named)
        plain = '"*"' in written or _ROLE in written
        # A reference to somebody else's role may be this one.
        unknown = any(
            mark in written for mark in ('"Ref": "', "ImportValue", "FindInMap", "Fn::If")
        ) and not (_is_account(written))
        if body.get("Effect") == "Allow" and unknown:
            return None
        if body.get("Effect") == "Allow" and plain:
            given = words(body.get("Action"))
            if not given:
                return None
            actions |= {each.lower() for each in given}
    if not actions:
        return "use it"
    return None if has_action(actions, _GRANT) else f"{_GRANT} on it"


def _known(principal: Json, key: Resource, templates: TemplateSet) -> Json:
    """Return a principal by its parameter's default, or "" for a role that is made here."""
    role = templates.target(principal, key.file)
    known = role is not None and role.type in {"AWS::IAM::Role", "AWS::IAM::User"}
    return "" if known else templates.default(principal, key.file)


def _is_account(written: str) -> bool:
    """Tell the account itself, whose IAM policies do not reach a service-linked role."""
    return ":root" in written
