"""Reads templates: text to objects, and what depends on what."""

import json
import re
from collections.abc import Iterator, Mapping

import yaml

from megatron_eks.local.aws.cloudformation.errors import ValidationError
from megatron_eks.local.aws.cloudformation.format import check_format
from megatron_eks.local.aws.cloudformation.parameters import check_parameters
from megatron_eks.local.aws.values import Object, Value

_SUBSTITUTION = re.compile(r"\$\{(?!!)([^}]+)\}")


class _Loader(yaml.SafeLoader):
    """YAML with the short forms of intrinsic functions, such as `!Ref`.

    Dates stay texts: a version that is written without quotes is 2012-10-17 all the same.
    """


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:timestamp"]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _short_form(loader: _Loader, suffix: str, node: yaml.Node) -> Object:
    value: Value
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
        if suffix == "GetAtt":
            value = value.split(".", 1)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    elif isinstance(node, yaml.MappingNode):
        value = loader.construct_mapping(node, deep=True)
    return {suffix if suffix in {"Ref", "Condition"} else f"Fn::{suffix}": value}


_Loader.add_multi_constructor("!", _short_form)


def parse(body: str) -> Object:
    """Read a template, JSON or YAML."""
    try:
        try:
            template = json.loads(body)
        except ValueError:
            # Our loader is the safe one, with tags that only make mappings.
            template = yaml.load(body, Loader=_Loader)  # noqa: S506 -- see above
    except yaml.YAMLError as error:
        raise ValidationError(f"Template format error: {error}") from error
    if not isinstance(template, dict):
        raise ValidationError("Template format error: unsupported structure.")
    resources = template.get("Resources")
    if not isinstance(resources, dict) or not resources:
        raise ValidationError(
            "Template format error: At least one Resources member must be defined."
        )
    check_format(template)
    check_parameters(template)
    _check_references(template)
    # Only to refuse a circle.
    in_order(template["Resources"])
    return template


def references(value: Value) -> Iterator[str]:
    """Yield the names that a value refers to: resources, parameters and pseudo parameters."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "Ref" and isinstance(inner, str):
                yield inner
            elif key == "Fn::GetAtt":
                yield inner.split(".")[0] if isinstance(inner, str) else inner[0]
            elif key == "Fn::Sub":
                yield from _substituted(inner)
            else:
                yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def _substituted(inner: Value) -> Iterator[str]:
    text, given = (inner, {}) if isinstance(inner, str) else (inner[0], inner[1])
    yield from references(given)
    for name in _SUBSTITUTION.findall(text):
        if name not in given:
            yield name.split(".")[0]


def _check_references(template: Object) -> None:
    known = {*template["Resources"], *template.get("Parameters", {})}
    for section in ("Resources", "Outputs"):
        for name, body in template.get(section, {}).items():
            for wanted in references(body):
                if wanted not in known and not wanted.startswith("AWS::"):
                    raise ValidationError(
                        "Template format error: Unresolved resource dependencies "
                        f"[{wanted}] in the {section} block of the template ({name})"
                    )
            if section == "Resources":
                for wanted in depends_on(body):
                    if wanted not in template["Resources"]:
                        raise ValidationError(
                            "Template format error: Unresolved resource dependencies "
                            f"[{wanted}] in the Resources block of the template ({name})"
                        )


def depends_on(body: Object) -> list[str]:
    """Return the names in a resource's DependsOn."""
    wanted = body.get("DependsOn", [])
    return [wanted] if isinstance(wanted, str) else wanted


def in_order(resources: Mapping[str, Object]) -> list[str]:
    """Return the names of resources, each after those that it needs."""
    needs = {
        name: sorted(
            {*references(body.get("Properties", {})), *depends_on(body)} & resources.keys()
        )
        for name, body in resources.items()
    }
    done: list[str] = []
    entered: set[str] = set()

    def visit(name: str) -> None:
        if name in done:
            return
        if name in entered:
            raise ValidationError(
                f"Circular dependency between resources: [{', '.join(sorted(entered))}]"
            )
        entered.add(name)
        for each in needs[name]:
            visit(each)
        entered.discard(name)
        done.append(name)

    for name in resources:
        visit(name)
    return done
