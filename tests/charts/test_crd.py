"""The PyTorchJob definition: fresh, small, and the same as upstream's."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cdk8s
import pytest
import yaml

from charts.platform import crd
from charts.platform.crd.__main__ import KUBERNETES_MINOR, generate
from tests.charts.validation import assert_valid
from tests.upstream.modules import module_directory

_OPERATOR = "github.com/kubeflow/training-operator"
_ABSENT = "(absent)"


def test_the_committed_definition_is_what_the_generator_writes():
    """`python -m charts.platform.crd` would change nothing."""
    committed = Path(crd.__file__).with_name("pytorchjobs.json")
    assert committed.read_text(encoding="utf-8") == generate()


def test_the_definition_fits_in_an_annotation():
    """Client-side `kubectl apply` stores a copy in an annotation, of which 256 KiB are allowed."""
    assert len(generate()) < 100_000


def test_the_manifest_carries_the_whole_definition():
    """Nothing gets lost on the way through cdk8s, extensions of the schema included."""
    chart = cdk8s.Testing.chart()
    crd.PyTorchJobDefinition(chart, "definition")
    (manifest,) = cdk8s.Testing.synth(chart)
    assert manifest == crd.read_definition()
    assert_valid(manifest)


def test_every_list_key_is_required_or_has_a_default():
    """The API server refuses a definition in which a list's key may be absent."""
    lists = [node for node in _nodes(_schema(crd.read_definition())) if _keys(node)]
    assert lists
    for node in lists:
        items = node["items"]
        for key in _keys(node):
            assert key in items.get("required", ()) or "default" in items["properties"][key]


@pytest.mark.oracle
def test_the_definition_is_upstreams_field_by_field():
    """Fields, types, requirements, list types, keys, defaults and columns are all the same."""
    text = module_directory(_OPERATOR) / "manifests/base/crds/kubeflow.org_pytorchjobs.yaml"
    upstream = yaml.safe_load(text.read_text(encoding="utf-8"))
    # Which version of its generator wrote the file says nothing about the definition.
    del upstream["metadata"]["annotations"]
    assert list(_differences(crd.read_definition(), _without_descriptions(upstream))) == []


@pytest.mark.oracle
def test_the_definition_is_not_newer_than_the_operator():
    """A field that the operator's own Kubernetes types lack would be admitted and dropped."""
    requirements = (module_directory(_OPERATOR) / "go.mod").read_text(encoding="utf-8")
    (minor,) = re.findall(r"^\tk8s\.io/api v0\.(\d+)\.", requirements, re.MULTILINE)
    assert f"1.{minor}" == KUBERNETES_MINOR


def _schema(definition: dict[str, Any]) -> dict[str, Any]:
    (version,) = definition["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def _keys(node: dict[str, Any]) -> list[str]:
    keys: list[str] = node.get("x-kubernetes-list-map-keys", [])
    return keys


def _nodes(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    children = [*schema.get("properties", {}).values()]
    children += [schema[key] for key in ("items", "additionalProperties") if key in schema]
    for child in children:
        yield from _nodes(child)


def _without_descriptions(value: Any, *, names: bool = False) -> Any:
    """Drop the texts, but not the printer columns and fields that are called `description`."""
    match value:
        case dict():
            return {
                key: _without_descriptions(child, names=key == "properties" and not names)
                for key, child in value.items()
                if names or key != "description"
            }
        case list():
            return [_without_descriptions(item) for item in value]
    return value


def _differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted({*ours, *theirs}):
            place = f"{path}.{key}"
            yield from _differences(ours.get(key, _ABSENT), theirs.get(key, _ABSENT), place)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, pair in enumerate(zip(ours, theirs, strict=True)):
            yield from _differences(*pair, path=f"{path}[{index}]")
    elif ours != theirs or type(ours) is not type(theirs):
        yield f"{path}: {ours!r} is {theirs!r} upstream"
