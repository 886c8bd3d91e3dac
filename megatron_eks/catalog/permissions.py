"""What commands and stacks may have to do in an account, by the resource that they do it to."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from megatron_eks.catalog.tables import sections

Principal = Literal["caller", "bootstrap", "cloudformation"]


@dataclass(frozen=True)
class Need:
    """Actions on one kind of resource."""

    principal: Principal
    """Who does it: whoever calls `meks`, whoever bootstraps the CDK, the role of CloudFormation."""
    what_for: str
    resource: str
    """An ARN whose last parts are those of a cluster, or `*` where AWS knows no narrower one."""
    actions: tuple[str, ...]
    stack: str | None = None
    """The stack that consists of it; None: whatever there is."""


def _read() -> Iterator[Need]:
    for entry in re.split(r"\n(?! )", sections("permissions.txt")["needs"].strip()):
        head, _, actions = entry.partition("\n")
        who, what_for, resource, *stack = head.split(" | ")
        if not resource.startswith(("arn:", "*")):
            service, _, rest = resource.partition(":")
            region = "" if service == "iam" else "{region}"
            resource = f"arn:{{partition}}:{service}:{region}:{{account}}:{rest}"
        principal = next(each for each in get_args(Principal) if each == who)
        yield Need(principal, what_for, resource, tuple(actions.split()), next(iter(stack), None))


NEEDS = tuple(_read())
