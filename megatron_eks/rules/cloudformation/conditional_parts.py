"""Rule over what a template makes under a condition alone, and names always."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.cloudformation.properties import named
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.values import mapping, text


def always_named(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of a reference to something that is not made where a condition is false.

    CloudFormation User Guide, "Condition functions": "Unresolved resource dependencies", and the
    template is refused; what waits by DependsOn is left out there without an error.
    """
    for file, template in templates.files():
        resources = mapping(template.get("Resources")) or {}
        known = mapping(template.get("Conditions")) or {}
        conditions = {
            name: condition
            for name, body in resources.items()
            if (condition := text((mapping(body) or {}).get("Condition")) or "") in known
        }
        for section in ("Resources", "Outputs") if conditions else ():
            for name, body in (mapping(template.get(section)) or {}).items():
                own = mapping(body) or {}
                # Under another condition the two may well be one.
                if own.get("Condition") is not None:
                    continue
                inner = own.get("Properties") if section == "Resources" else own
                for path, other in named(_always(inner), ()):
                    if other in conditions:
                        yield _found((section, name, *path), other, conditions[other], file)


def _found(path: Path, other: str, condition: str, file: str) -> Finding:
    found = f"{other} is made under {condition} alone, and named here always: where that is false "
    found += "CloudFormation refuses the template"
    remedy = (
        f"name it in Fn::If [{condition}, ..., Ref AWS::NoValue], or put this under Condition: "
    )
    return Finding(Code.REFERENCE, path, found, f"{remedy}{condition}", Level.WARNING, file)


def _always(value: Json) -> Json:
    """Return a value without what a condition chooses in it."""
    if isinstance(value, list):
        return [_always(each) for each in value]
    if not isinstance(value, dict) or "Fn::If" in value:
        return None if isinstance(value, dict) else value
    return {key: _always(each) for key, each in value.items()}
