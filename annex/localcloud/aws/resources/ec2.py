"""What most resource types of EC2 have in common: one operation makes them, tags come after."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from megatron_eks.localcloud.aws.resources.handler import (
    Context,
    Handler,
    Setting,
    change_tags,
    untagged,
)
from megatron_eks.localcloud.aws.values import Object


def retag(context: Context, physical_id: str, old: Object, new: Object) -> None:
    """Give a resource of EC2 the tags that it should have."""
    owner = {"Resources": [physical_id]}
    change_tags(context.clients("ec2"), ("DeleteTags", "CreateTags"), owner, old, new)


@dataclass
class Ec2(Handler):
    """A type of EC2 whose properties are the arguments of one operation."""

    kind: str
    creates: tuple[str, str]
    deletes: tuple[str, ...]
    # The handler has both for all of its kind; here each resource type is an object.
    answers: Mapping[str, str] = field(default_factory=dict)  # type: ignore[misc]  # no ClassVar
    describes: tuple[str, ...] | None = None
    service: str = "ec2"
    owner: str = ""
    settings: Mapping[str, Setting] = field(default_factory=dict)  # type: ignore[misc]  # no ClassVar

    def create(self, context: Context, properties: Object) -> str:
        """Make the resource, then give it its tags."""
        physical_id = super().create(context, untagged(properties))
        retag(context, physical_id, {}, properties)
        return physical_id

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Change tags; types that can change more settle that."""
        if untagged(old) != untagged(new):
            super().update(context, physical_id, untagged(old), untagged(new))
        retag(context, physical_id, old, new)
