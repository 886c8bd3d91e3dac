"""What CreateStack, UpdateStack and CreateChangeSet are given."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """What the three operations have in common."""

    body: str | None
    """None for the template that the stack has."""
    parameters: Mapping[str, str]
    tags: Mapping[str, str] | None
    capabilities: tuple[str, ...]
    role: str | None
    import_existing: bool = False
