"""Failures on demand: the next time that a resource is made, changed or deleted."""

from dataclasses import dataclass, field

from megatron_eks.localcloud.aws.values import Object


@dataclass
class Failures:
    """What somebody asked to fail."""

    _wanted: list[Object] = field(default_factory=list)

    def add(self, wanted: Object) -> None:
        """Let one call fail: `resource` (a type, or a name's beginning), `action`, `message`."""
        self._wanted.append(
            {
                "resource": str(wanted["resource"]),
                "action": str(wanted.get("action", "CREATE")).upper(),
                "message": str(wanted.get("message", "Internal Failure")),
            }
        )

    def take(self, action: str, name: str, kind: str) -> str | None:
        """Return the message of a failure that is due, and forget it."""
        for each in self._wanted:
            resource = each["resource"]
            if each["action"] == action and (kind == resource or name.startswith(resource)):
                self._wanted.remove(each)
                return (
                    f'Resource handler returned message: "{each["message"]}" '
                    "(HandlerErrorCode: GeneralServiceException)"
                )
        return None
