"""Reads values of unknown shape: what is absent, what only AWS or a template engine can know."""

import ipaddress
import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from megatron_eks.config.load import Json

_SHOWN = 120
_MAX_DIGITS = 20
_PLACEHOLDER = re.compile(r"\$|\{\{|<[A-Za-z_]|%[sd]|__[A-Z_]+__|PLACEHOLDER|\bYOUR_[A-Z]")


def text(value: "Json") -> str | None:
    """Return a text, or None for everything else."""
    return value if isinstance(value, str) else None


def number(value: "Json") -> int | None:
    """Return a whole number, also one written as text, as CloudFormation accepts it."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and len(value) < _MAX_DIGITS and re.fullmatch(r"[+-]?[0-9]+", value):
        return int(value)
    return None


def truth(value: "Json") -> bool | None:
    """Return a truth value, also one written as text, as CloudFormation accepts it."""
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else None


def is_absent(value: "Json") -> bool:
    """Tell whether a property is not there: no key, null, CloudFormation's word for it.

    An empty list says as little: CloudFormation and the API server take it for none.
    """
    if not isinstance(value, dict):
        return value is None or value == []
    return len(value) == 1 and value.get("Ref") == "AWS::NoValue"


def is_given(value: "Json") -> bool:
    """Tell whether a property is there whatever a condition chooses.

    Where one may take it away, each branch is judged by itself as well.
    """
    branches = value.get("Fn::If") if isinstance(value, dict) else None
    chosen = branches[1:] if isinstance(branches, list) else ()
    return not is_absent(value) and all(is_given(each) for each in chosen)


def is_intrinsic(value: "Json") -> bool:
    """Tell whether only CloudFormation can know the value."""
    if not isinstance(value, dict) or is_absent(value):
        return False
    if len(value) == 1 and not value.keys().isdisjoint(("Ref", "Condition")):
        return True
    for key in value:  # noqa: SIM110 -- a loop is twice as fast as any() here, and asked most
        if key.startswith("Fn::"):
            return True
    return False


def written(value: "Json") -> str | None:
    """Return a text, with `${NAME}` or `${}` for each part that only CloudFormation knows.

    Equal texts written with different functions become equal; None where nothing can be said.
    """
    if not isinstance(value, dict) or len(value) != 1:
        return text(value)
    ((function, inner),) = value.items()
    if function == "Ref":
        return f"${{{inner}}}" if isinstance(inner, str) else None
    first, *rest = inner if isinstance(inner, list) and inner else [inner]
    if function == "Fn::GetAtt":
        names = [text(first), *(text(each) for each in rest)]
        return None if None in names else f"${{{'.'.join(filter(None, names))}}}"
    if function == "Fn::Sub":
        return text(first)
    if function == "Fn::Join" and len(rest) == 1 and isinstance(rest[0], list):
        return (text(first) or "").join(written(each) or "${}" for each in rest[0])
    return None


def mapping(value: "Json") -> "dict[str, Json] | None":
    """Return the keys of a mapping, none for an absent one; None when they cannot be known."""
    if is_absent(value):
        return {}
    return value if isinstance(value, dict) and not is_intrinsic(value) else None


def items(value: "Json") -> "list[Json] | None":
    """Return the elements of a list, none for an absent one; None when they cannot be known.

    A condition inside a list may drop or add an element, so such a list is not known either.
    """
    if is_absent(value):
        return []
    if not isinstance(value, list) or any(
        isinstance(item, dict) and "Fn::If" in item for item in value
    ):
        return None
    return [item for item in value if not is_absent(item)]


def is_placeholder(value: str) -> bool:
    """Tell whether a text waits for a template engine: `${IMAGE}`, `{{ image }}`, `<image>`."""
    return _PLACEHOLDER.search(value) is not None


def shown(value: "Json") -> str:
    """Write a value for a finding: on one line, and short."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    written = ascii(value[: _SHOWN + 1]) if isinstance(value, str) else json.dumps(value)
    return written if len(written) <= _SHOWN else f"{written[:_SHOWN]}..."


def is_range(value: str) -> bool:
    """Tell whether a text is a range of addresses, such as 10.0.0.0/16."""
    try:
        ipaddress.ip_network(value, strict=False)
    except ValueError:
        return False
    return "/" in value
