"""Small stacks, by boto3: what a test deploys, and what became of it."""

import json
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass
class Stacks:
    """CloudFormation of one region."""

    client: Any

    def create(self, name: str, resources: Json, **sections: Json) -> str:
        """Create a stack and return the status that it ended in."""
        return self._carry_out("CREATE", name, resources, sections)

    def update(self, name: str, resources: Json, **sections: Json) -> str:
        """Update a stack and return the status that it ended in."""
        return self._carry_out("UPDATE", name, resources, sections)

    def _carry_out(self, kind: str, name: str, resources: Json, sections: Json) -> str:
        self._announce(kind, name, "make", resources, sections)
        self.client.execute_change_set(StackName=name, ChangeSetName="make")
        return self.status(name)

    def _announce(
        self, kind: str, name: str, change_set: str, resources: Json, sections: Json
    ) -> None:
        self.client.create_change_set(
            StackName=name,
            ChangeSetName=change_set,
            ChangeSetType=kind,
            TemplateBody=json.dumps({"Resources": resources, **sections}),
            Capabilities=["CAPABILITY_NAMED_IAM"],
        )

    def delete(self, name: str) -> str:
        """Delete a stack and return the status that it ended in."""
        number = self.describe(name)["StackId"]
        self.client.delete_stack(StackName=name)
        return self.status(number)

    def describe(self, name: str) -> Json:
        """Return what is told of a stack."""
        found: Json = self.client.describe_stacks(StackName=name)["Stacks"][0]
        return found

    def status(self, name: str) -> str:
        """Return a stack's status."""
        return str(self.describe(name)["StackStatus"])

    def reasons(self, name: str, status: str) -> dict[str, str]:
        """Return the reasons of the resources that had a status, by name."""
        events = self.client.describe_stack_events(StackName=name)["StackEvents"]
        return {
            each["LogicalResourceId"]: each.get("ResourceStatusReason", "")
            for each in events
            if each["ResourceStatus"] == status
        }

    def physical(self, name: str) -> dict[str, str]:
        """Return the physical ids of a stack's resources, by name."""
        found = self.client.describe_stack_resources(StackName=name)["StackResources"]
        return {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in found}

    def changes(self, name: str, resources: Json, **sections: Json) -> list[Json]:
        """Return what a change set says that a template would do."""
        self._announce("UPDATE", name, "look", resources, sections)
        found = self.client.describe_change_set(StackName=name, ChangeSetName="look")
        self.client.delete_change_set(StackName=name, ChangeSetName="look")
        return [each["ResourceChange"] for each in found["Changes"]]
