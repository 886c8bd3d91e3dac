"""Writes the table of eksctl's cluster files from its own schema.

    python -m tests.upstream.eksctl schema.json

The file is pkg/apis/eksctl.io/v1alpha5/assets/schema.json of eksctl-io/eksctl. No other target runs
it, as the schema is in none of our packages.
"""

import json
import sys
from pathlib import Path
from typing import Any

from megatron_eks.rules.shapes import EKSCTL

# A JSON schema or a shape made of one, which have no narrower type.
Json = Any

KIND = "eksctl.io/v1alpha5 ClusterConfig"
# What eksctl reads in more ways than its schema says (UnmarshalJSON of these types).
_OPEN = ("AZSubnetMapping", "IdentityProvider", "InlineDocument", "taintsWrapper")
_NARROW = {"string": "text", "integer": "whole", "boolean": "truth", "number": "number"}
_TEXTS = ("ARN", "IPNet")


def shape_of(schema: Json, definitions: Json) -> Json:
    """Return the shape of a part of the schema."""
    reference = schema.get("$ref", "").removeprefix("#/definitions/")
    if reference:
        name = reference.rpartition(".")[2]
        open_ = "any" if name in _OPEN else shape_of(definitions[reference], definitions)
        return "text" if name in _TEXTS else open_
    if "properties" in schema:
        return {
            key: shape_of(each, definitions) for key, each in sorted(schema["properties"].items())
        }
    if isinstance(schema.get("additionalProperties"), dict):
        return {"*": shape_of(schema["additionalProperties"], definitions)}
    if "items" in schema:
        return [shape_of(schema["items"], definitions)]
    narrow = _NARROW.get(schema.get("type", ""), "any")
    return {"=": schema["enum"]} if "enum" in schema else narrow


def main() -> None:
    """Write the table."""
    schema = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    shape = shape_of(schema, schema["definitions"])
    lines = [f"{json.dumps(key)}: {json.dumps(each)}" for key, each in shape.items()]
    EKSCTL.write_text(f'{{\n"{KIND}": {{\n' + ",\n".join(lines) + "\n}\n}\n")


if __name__ == "__main__":
    main()
