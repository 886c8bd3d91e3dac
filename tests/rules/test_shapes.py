"""The tables of properties and fields: as fresh as the linters' schemas, and read as they say."""

from typing import Any

import pytest

from megatron_eks.rules.shapes import (
    CLOUDFORMATION,
    KUBERNETES,
    RESOURCES,
    Misfit,
    misfits,
    table,
)
from tests.upstream import shapes


@pytest.mark.parametrize(
    ("file", "made"),
    [
        (CLOUDFORMATION, shapes.cloudformation),
        (KUBERNETES, shapes.kubernetes),
        (RESOURCES, shapes.resources),
    ],
    ids=["CloudFormation", "Kubernetes", "IAM"],
)
def test_the_table_is_fresh(file, made):
    """`make generate` has been run since the linters' versions changed."""
    assert file.read_text() == shapes.written(made())


def test_every_name_in_the_table_is_in_it():
    """A part that another one names is there, so that judging never fails."""
    known = table(KUBERNETES)

    def named(shape):
        if isinstance(shape, str):
            return {shape} if shape.startswith("#") else set()
        inner = shape.values() if isinstance(shape, dict) and "=" not in shape else shape
        return {name for each in inner for name in named(each)}

    assert {name for shape in known.values() for name in named(shape)} <= set(known)


@pytest.mark.parametrize(
    ("value", "shape", "loose", "strict"),
    [
        ("8", "whole", "", "a whole number"),
        (8, "text", "", "a text"),
        ("true", "truth", "", "true or false"),
        (True, "whole", "a whole number", "a whole number"),
        (1.5, "number", "", ""),
        (101, "whole 1 100", "100 or less", "100 or less"),
        (0, "whole 1 -", "1 or more", "1 or more"),
        ({"a": "b"}, [{"a": "text"}], "", "a list"),
        ("a", ["text"], "a list", "a list"),
        ({"Ref": "A"}, "whole", "", "a whole number"),
        ("$(A)", "whole", "", ""),
        ("b", {"=": ["a", "c"]}, "one of a, c", "one of a, c"),
        ([], {"*": "text"}, "a mapping", "a mapping"),
        ({"any": "b"}, {"*": "whole"}, "a whole number", "a whole number"),
    ],
)
def test_a_value_against_a_shape(value, shape, loose, strict):
    """CloudFormation turns texts into numbers and back; the API server does not."""
    for expected, is_loose in ((loose, True), (strict, False)):
        found = [each.expected for each in misfits(value, shape, {}, loose=is_loose)]
        assert found == ([expected] if expected else [])


def test_keys_of_a_mapping():
    """What is unknown and what is missing, each with its place; a loop may bring the rest."""
    shape: Any = {"name!": "text", "size": "whole"}
    found = list(misfits({"sise": 1}, shape, {}, loose=False))
    assert found == [
        Misfit(("sise",), 1, known=("name", "size")),
        Misfit(("name",), None, missing=True),
    ]
    assert list(misfits({"Fn::ForEach::A": []}, shape, {}, loose=True)) == []
