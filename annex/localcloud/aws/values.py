"""What AWS's requests and templates are made of, and the one account that there is."""

from typing import Any

# JSON, which has no narrower type.
Value = Any
Object = dict[str, Any]

# No account has this number.
ACCOUNT = "000000000000"
PARTITION = "aws"


def present(values: Object) -> Object:
    """Return values without those that are None."""
    return {name: value for name, value in values.items() if value is not None}


def pick(value: Value, path: str) -> Value:
    """Return what stands at a dotted path of nested objects, None where nothing does."""
    for part in path.split("."):
        if value is not None:
            value = value[int(part)] if part.isdigit() else value.get(part)
    return value
