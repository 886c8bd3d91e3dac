"""What commands write for programs is as docs/schemas says."""

import json
from typing import Any

import jsonschema

from megatron_eks.project import ROOT


def read(name: str, text: str) -> Any:
    """Return what a command wrote, if it is as the schema of a name has it."""
    found = json.loads(text)
    jsonschema.validate(found, json.loads((ROOT / "docs" / "schemas" / f"{name}.json").read_text()))
    return found


def checked(name: str, value: object) -> Any:
    """Return plain values as programs get them, if they are as the schema of a name has them."""
    return read(name, json.dumps(value))
