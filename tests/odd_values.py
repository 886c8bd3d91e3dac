"""Values that no one expects, and how to put one anywhere."""

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

# Any value of a file, which has no narrower type.
Json = Any
Place = tuple[str | int, ...]

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2000)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        ["-1", "tcp", "efa", "p4d.24xlarge", "Memory", "8", "$(A)", "hf_", "--nnodes"]
    )
)
NAMES = st.text(max_size=6) | st.sampled_from(
    [
        *("Ref", "Fn::If", "Fn::GetAtt", "Fn::ImportValue", "Fn::Sub", "Fn::Join", "Properties"),
        *("name", "value", "spec", "template", "containers", "env", "resources", "limits", "items"),
    ]
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


def places(node: Json, path: Place = ()) -> Iterator[Place]:
    """Return the place of everything in a value but the value itself."""
    children = node.items() if isinstance(node, dict) else enumerate(node)
    for key, child in children:
        yield (*path, key)
        if isinstance(child, dict | list):
            yield from places(child, (*path, key))


def put(root: Json, place: Place, value: Json) -> Json:
    """Return a copy with another value in one place."""
    copy = json.loads(json.dumps(root))
    node = copy
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = value
    return copy
