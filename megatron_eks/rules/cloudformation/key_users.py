"""Rules over keys of KMS, and who must be allowed to use them."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.policies import statements
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, is_intrinsic, items, mapping, shown, text, written

_CONTEXT = "kms:EncryptionContext:aws:logs:arn"
_GROUP = ":log-group:"
_VIA = "kms:ViaService"
_NAME_OF_REGION = r"(?P<region>[a-z]{2}(-[a-z]+)+-[0-9])"
_REGIONAL = re.compile(rf"[a-z0-9-]+\.{_NAME_OF_REGION}\.")
_IN_ARN = re.compile(rf"arn:(?:[a-z-]+|\$\{{[^}}]*\}}):[a-z0-9-]+:{_NAME_OF_REGION}:")
_ZONE = re.compile(rf"{_NAME_OF_REGION}[a-z]")


def log_groups(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a log group's key that CloudWatch Logs may use it for this group.

    CloudWatch Logs User Guide, "Encrypt log data in CloudWatch Logs using KMS": the group is not
    made otherwise, and the stack is rolled back.
    """
    for group in templates.resources("AWS::Logs::LogGroup"):
        key = templates.target(group.properties.get("KmsKeyId"), group.file)
        if key is None or key.type != "AWS::KMS::Key":
            continue
        # KMS Developer Guide, "Default key policy": it is for the account, and for no service.
        none = is_absent(key.properties.get("KeyPolicy"))
        listed = [] if none else statements(key.properties.get("KeyPolicy"))
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


def regions(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a key's policy the services of the key's own region.

    CloudWatch Logs User Guide, "Encrypt log data in CloudWatch Logs using KMS", and KMS Developer
    Guide, "kms:ViaService": a key is used in its own region alone.
    """
    for key in templates.resources("AWS::KMS::Key"):
        for index, body in enumerate(statements(key.properties.get("KeyPolicy")) or []):
            # A statement's own condition, and zones beside the key, say where it is.
            own = {*_regions_of(body.get("Condition")), *_zones(templates, key.file)}
            for said, region, path in _services(body):
                if body.get("Effect") == "Allow" and own and region not in own:
                    beside = ", ".join(sorted(own))
                    found = f"{said} is of {region}, and this key of {beside}: it helps nobody here"
                    place: Path = ("KeyPolicy", "Statement", index, *path)
                    remedy = f"write {said.replace(region, min(own))}"
                    yield key.find(Code.KEY_POLICY, place, found, remedy)


def _services(body: "dict[str, Json]") -> "Iterator[tuple[str, str, tuple[str, ...]]]":
    """Return the services of a statement that name a region, with it and their place."""
    principal = (mapping(body.get("Principal")) or {}).get("Service")
    for each in _listed(principal):
        match = _REGIONAL.match(written(each) or "")
        if match:
            yield match[0].rstrip("."), match["region"], ("Principal",)
    for operator in (mapping(body.get("Condition")) or {}).values():
        for each in _listed((mapping(operator) or {}).get(_VIA)):
            match = _REGIONAL.match(written(each) or "")
            if match:
                yield match[0].rstrip("."), match["region"], ("Condition",)


def _regions_of(condition: Json) -> set[str]:
    """Return the regions of the ARNs in a condition."""
    found = set()
    for operator in (mapping(condition) or {}).values():
        for value in (mapping(operator) or {}).values():
            for each in _listed(value):
                match = _IN_ARN.match(written(each) or "")
                found |= {match["region"]} if match else set()
    return found


def _zones(templates: TemplateSet, file: str) -> set[str]:
    """Return the regions of the zones that a template names; none where there are several."""
    found = {
        match["region"]
        for each in templates.everything()
        if each.file == file
        and (match := _ZONE.fullmatch(text(each.properties.get("AvailabilityZone")) or ""))
    }
    return found if len(found) == 1 else set()


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
