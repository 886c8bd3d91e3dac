"""Reads templates: text to objects, and what depends on what."""

import json
from collections.abc import Iterator, Mapping

import yaml

from megatron_eks.localcloud.aws.cloudformation.errors import ValidationError
from megatron_eks.localcloud.aws.cloudformation.intrinsics import SUBSTITUTION
from megatron_eks.localcloud.aws.values import Object, Value


def parse(body: str) -> Object:
    """Read a template."""
    try:
        template: Object = json.loads(body)
    except ValueError:
        # `cdk bootstrap` sends YAML.
        template = yaml.safe_load(body)
    return template


def references(value: Value) -> Iterator[str]:
    """Yield the names that a value refers to: resources, parameters and pseudo parameters."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "Ref" and isinstance(inner, str):
                yield inner
            elif key == "Fn::GetAtt":
                yield inner[0]
            elif key == "Fn::Sub":
                yield from (name.split(".")[0] for name in SUBSTITUTION.findall(inner))
            else:
                yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


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
