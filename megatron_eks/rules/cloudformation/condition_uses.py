"""The conditions that the parts of a template name."""

from collections.abc import Iterator, Mapping

from megatron_eks.config.load import Json
from megatron_eks.rules.values import mapping, text

# Everything in the CDK's own record depends on the region, and nothing else on that condition.
_NO_PART = "AWS::CDK::Metadata"


def used_in(template: "Mapping[str, Json]") -> set[str]:
    """Return the conditions on which any part of a template depends."""
    names: set[str] = set()
    for section in ("Resources", "Outputs"):
        for body in (mapping(template.get(section)) or {}).values():
            if isinstance(body, dict) and body.get("Type") != _NO_PART:
                names.update(filter(None, [text(body.get("Condition"))]))
                names.update(_chosen_by(body))
    return names


def _chosen_by(value: Json) -> Iterator[str]:
    if isinstance(value, dict):
        given = value.get("Fn::If")
        name = text(given[0]) if isinstance(given, list) and given else None
        yield from filter(None, [name])
    listed = value if isinstance(value, list) else []
    for each in value.values() if isinstance(value, dict) else listed:
        if isinstance(each, dict | list):
            yield from _chosen_by(each)
