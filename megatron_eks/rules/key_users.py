"""Rules over keys of KMS, and who must be allowed to use them."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.config.load import Json
from megatron_eks.rules.policies import statements
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, is_intrinsic, items, mapping, shown, written

_CONTEXT = "kms:EncryptionContext:aws:logs:arn"
_GROUP = ":log-group:"


def log_groups(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a log group's key that CloudWatch Logs may use it for this group.

    CloudWatch Logs User Guide, "Encrypt log data in CloudWatch Logs using KMS": the group is not
    made otherwise, and the stack is rolled back.
    """
    for group in templates.resources("AWS::Logs::LogGroup"):
        key = templates.target(group.properties.get("KmsKeyId"), group.file)
        if key is None or key.type != "AWS::KMS::Key":
            continue
        listed = statements(key.properties.get("KeyPolicy"))
        if listed is None or any(_is_open(each) for each in listed):
            continue
        for_logs = [each for each in listed if _names_logs(each.get("Principal"))]
        name = written(group.properties.get("LogGroupName"))
        if not for_logs:
            found = f"{key.id} does not let CloudWatch Logs use it"
            remedy = f"allow logs.REGION.amazonaws.com in the policy of {key.id}"
        elif name is not None and not any(_covers(each, group, key, name) for each in for_logs):
            found = f"{key.id} lets CloudWatch Logs use it for other groups than {shown(name)}"
            remedy = f"name the group in the Condition of {key.id}"
        else:
            continue
        yield group.find(Code.KEY_POLICY, ("KmsKeyId",), found, remedy)


def administrators(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a key's policy that somebody may change it.

    KMS API, CreateKey: the key is refused where nobody may call PutKeyPolicy afterwards
    (MalformedPolicyDocument), unless the check is switched off.
    """
    for key in templates.resources("AWS::KMS::Key"):
        listed = statements(key.properties.get("KeyPolicy"))
        if listed and not any(_administers(each) for each in listed):
            found = "nobody may change this policy, so KMS refuses the key"
            remedy = "allow kms:* to arn:aws:iam::ACCOUNT:root"
            yield key.find(Code.KEY_POLICY, ("KeyPolicy",), found, remedy)


def _administers(statement: "dict[str, Json]") -> bool:
    principal = statement.get("Principal")
    people = mapping(principal)
    whom = principal == "*" or people is None or not is_absent(people.get("AWS"))
    given = statement.get("Action")
    listed = [given] if isinstance(given, str) else items(given)
    named = (
        listed is None
        or not is_absent(statement.get("NotAction"))
        or any(
            not isinstance(each, str) or fnmatchcase("kms:putkeypolicy", each.lower())
            for each in listed
        )
    )
    return whom and named and statement.get("Effect") == "Allow"


def _is_open(statement: "dict[str, Json]") -> bool:
    """Tell a statement that may admit anybody."""
    principal = statement.get("Principal")
    return statement.get("Effect") == "Allow" and (principal == "*" or is_intrinsic(principal))


def _names_logs(principal: Json) -> bool:
    service = (mapping(principal) or {}).get("Service")
    every = service if isinstance(service, list) else [service]
    texts = [written(each) for each in every]
    return any(each is None or each.startswith(("logs.", "$")) for each in texts if service)


def _covers(statement: "dict[str, Json]", group: Resource, key: Resource, name: str) -> bool:
    """Tell whether a condition lets a group's name pass, or may do so."""
    condition = mapping(statement.get("Condition"))
    if condition is None or is_absent(statement.get("Condition")):
        return True
    values = [
        each
        for operator in condition.values()
        for each in _listed((mapping(operator) or {}).get(_CONTEXT))
    ]
    patterns = [written(each) for each in values]
    if not patterns or None in patterns:
        return True
    endings = [each.partition(_GROUP)[2] for each in patterns if each]
    # What another template calls a part nobody can compare here.
    if group.file != key.file and any("${" in each for each in (*endings, name)):
        return True
    return any(not each or fnmatchcase(f"{name}:*", each) or _like(name, each) for each in endings)


def _like(name: str, pattern: str) -> bool:
    """Compare with `*` for anything; a part in `${}` on one side alone may be anything too."""
    if "${" in pattern and "${" not in name:
        return True
    plain = name.replace("[", "").replace("]", "")
    return fnmatchcase(plain, pattern.replace("[", "").replace("]", ""))


def _listed(value: Json) -> list[Json]:
    return value if isinstance(value, list) else [] if is_absent(value) else [value]
