"""What most resource types of EC2 have in common: one operation makes them, tags come after."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from botocore import xform_name

from megatron_eks.local.aws.resources.arguments import call
from megatron_eks.local.aws.resources.handler import Context, Handler
from megatron_eks.local.aws.values import Object, Value, pick


def retag(context: Context, physical_id: str, old: Object, new: Object) -> None:
    """Give a resource of EC2 the tags that it should have."""
    before = {each["Key"]: each["Value"] for each in old.get("Tags", [])}
    after = {each["Key"]: each["Value"] for each in new.get("Tags", [])}
    gone = [{"Key": key} for key in before.keys() - after.keys()]
    ec2 = context.clients("ec2")
    if gone:
        ec2.delete_tags(Resources=[physical_id], Tags=gone)
    if after != before and after:
        ec2.create_tags(Resources=[physical_id], Tags=new["Tags"])


@dataclass
class Ec2(Handler):
    """A type of EC2 whose properties are the arguments of one operation."""

    kind: str
    create_operation: str
    id_path: str
    """Where the answer has the physical id."""
    delete_operation: str
    id_argument: str
    """Of the deleting operation."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[str, str] = field(default_factory=dict)
    """Attributes and where a describing operation has them."""
    describe: tuple[str, str] | None = None
    """That operation, and its argument for ids."""

    def create(self, context: Context, properties: Object) -> str:
        """Make the resource, then give it its tags."""
        plain = {key: value for key, value in properties.items() if key != "Tags"}
        answer = call(context, "ec2", self.create_operation, plain, self.renamed)
        physical_id: str = pick(answer, self.id_path)
        context.note(physical_id)
        retag(context, physical_id, {}, properties)
        return physical_id

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Change tags; types that can change more say how."""
        self.modify(context, physical_id, old, new)
        retag(context, physical_id, old, new)

    def modify(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Change what is not a tag."""
        untagged = [{k: v for k, v in each.items() if k != "Tags"} for each in (old, new)]
        if untagged[0] != untagged[1]:
            super().update(context, physical_id, *untagged)

    def delete(self, context: Context, physical_id: str, properties: Object) -> None:
        """Remove the resource."""
        del properties
        operation = getattr(context.clients("ec2"), xform_name(self.delete_operation))
        operation(**{self.id_argument: physical_id})

    def attributes(
        self, context: Context, physical_id: str, properties: Object
    ) -> Mapping[str, Value]:
        """Return what the describing operation tells."""
        del properties
        if self.describe is None:
            return dict.fromkeys(self.answers, physical_id)
        operation, argument = self.describe
        answer = getattr(context.clients("ec2"), xform_name(operation))(**{argument: [physical_id]})
        return {name: pick(answer, path) for name, path in self.answers.items()}
