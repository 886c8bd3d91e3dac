"""The definitions of jobs: fresh, small, and the same as upstream's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cdk8s
import pytest

from megatron_eks.catalog import kueue
from megatron_eks.charts.platform import crd
from tests.charts.validation import assert_valid
from tests.upstream.definitions import SOURCES, generate


def _committed(plural: str) -> Path:
    return Path(crd.__file__).with_name(f"{plural}.json")


@pytest.mark.oracle
@pytest.mark.parametrize("plural", SOURCES)
def test_the_committed_definition_is_what_the_generator_writes(plural):
    """Upstream's, field by field: types, requirements, list types, keys, defaults and columns."""
    assert _committed(plural).read_text(encoding="utf-8") == generate(plural)


@pytest.mark.parametrize("plural", SOURCES)
def test_the_definition_fits_in_an_annotation(plural):
    """Client-side `kubectl apply` stores a copy in an annotation, of which 256 KiB are allowed."""
    assert _committed(plural).stat().st_size < 100_000


@pytest.mark.parametrize("plural", SOURCES)
def test_the_manifest_carries_the_whole_definition(plural):
    """Nothing gets lost on the way through cdk8s, extensions of the schema included."""
    chart = cdk8s.Testing.chart()
    crd.add_definition(chart, plural)
    (manifest,) = cdk8s.Testing.synth(chart)
    assert manifest == crd.read_definition(plural)
    assert_valid(manifest)


@pytest.mark.parametrize("plural", SOURCES)
def test_every_list_key_is_required_or_has_a_default(plural):
    """The API server refuses a definition in which a list's key may be absent."""
    lists = [node for node in _nodes(_schema(crd.read_definition(plural))) if _keys(node)]
    # Not every kind of Kueue's has one.
    assert lists or plural in kueue.KINDS.values()
    for node in lists:
        items = node["items"]
        for key in _keys(node):
            assert key in items.get("required", ()) or "default" in items["properties"][key]


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
