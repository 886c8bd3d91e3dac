"""The JSON Schemas and the reference page that editors and people use."""

import json
import re
from pathlib import Path

import jsonschema
import pytest

from megatron_eks.config.load import Json, read_mapping
from megatron_eks.config.schema.__main__ import HERE, REFERENCE, reference, schemas

ROOT = Path(__file__).parents[2]


def test_committed_files_are_fresh():
    """`make generate` would change nothing."""
    for name, schema in schemas().items():
        assert json.loads((HERE / f"{name}.json").read_text()) == schema
    assert REFERENCE.read_text() == reference()


@pytest.mark.parametrize(
    ("schema", "file"),
    [
        ("cluster", "cluster.yaml"),
        *(("job", f"jobs/{path.name}") for path in sorted((ROOT / "jobs").iterdir())),
    ],
)
def test_shipped_files_follow_their_schema(schema, file):
    """An editor marks nothing in the files that we ship, and marks a misspelt key."""
    value = read_mapping((ROOT / file).read_text(), file).value
    jsonschema.validate(value, schemas()[schema])
    assert isinstance(value, dict)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**value, "nmae": "x"}, schemas()[schema])


def test_the_pages_examples_follow_the_schema():
    """Every block has one, and an editor marks nothing in it."""
    page = REFERENCE.read_text()
    blocks = re.findall(r"^### ([^\n]+)\n((?!### ).*\n)+?```yaml\n([^`]+)```", page, re.MULTILINE)
    assert len(blocks) == page.count("\n### ")
    files = {name: json.loads((HERE / f"{name}.json").read_text()) for name in ("cluster", "job")}
    definitions = files["cluster"]["$defs"] | files["job"]["$defs"]
    for name, _, text in blocks:
        block = definitions.get(name, files["cluster"])
        value = read_mapping(text, name).value
        jsonschema.validate(value, {**block, "$defs": definitions})


def test_texts_of_fields_reach_the_schema():
    """What stands below a field in the code is what an editor shows, inherited fields included."""
    assert text_of(schemas()["cluster"], "properties", "name") == "Prefix of every name."
    image = text_of(schemas()["job"], "$defs", "MegatronJob", "properties", "image")
    assert image.startswith("A repository of this cluster")


def text_of(value: Json, *path: str) -> str:
    """Return the description of what stands at a path."""
    for key in (*path, "description"):
        assert isinstance(value, dict)
        value = value[key]
    assert isinstance(value, str)
    return value
