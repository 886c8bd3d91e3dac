"""Who is calling and from where, and whether the administrators of a cluster file exist."""

import contextlib
import urllib.request

from megatron_eks.config.codes import Code
from megatron_eks.ops.aws.session import Aws, error_code
from megatron_eks.ops.aws.tools import Tools
from megatron_eks.ops.failure import USAGE, Failure

_DENIED = {"AccessDenied", "AccessDeniedException"}
_SSO_ROLE = "AWSReservedSSO_"
_ADDRESS = "https://checkip.amazonaws.com"
_ADDRESS_SECONDS = 5
_LONGEST_ADDRESS = 64


def caller_role(aws: Aws) -> str | None:
    """Return the ARN of the role that the caller has assumed, with its path where IAM tells it.

    None for a user or the root of an account: neither is what administers a cluster here.
    """
    arn = str(aws.client("sts").get_caller_identity()["Arn"])
    partition, account, rest = arn.split(":")[1], arn.split(":")[4], arn.split(":", 5)[5]
    if not rest.startswith("assumed-role/"):
        return None
    name = rest.split("/")[1]
    found = None
    with contextlib.suppress(LookupError):
        found = _role(aws, name)
    # The name of a session's role has lost its path; roles of Identity Center always have one.
    return found or f"arn:{partition}:iam::{account}:role/{_sso_path(name)}{name}"


def public_address() -> str:
    """Return the address under which the internet sees this machine. Raises OSError."""
    with urllib.request.urlopen(_ADDRESS, timeout=_ADDRESS_SECONDS) as answer:
        return str(answer.read(_LONGEST_ADDRESS).decode("ascii", "replace"))


def check_administrators(account: str, tools: Tools) -> None:
    """Refuse a cluster that nobody could administer; raise Failure."""
    plan = tools.plan
    if "Cluster" not in plan.stacks:
        return
    for arn in plan.access.admin_role_arns:
        if arn.split(":")[4] != account:
            tools.console.say(f"note: {arn} is a role of another account, and not looked up")
            continue
        name = arn.rsplit("/", 1)[1]
        try:
            found = _role(tools.aws, name)
        except LookupError:
            raise Failure(
                Code.NO_ADMINISTRATOR,
                f"account {account} has no role {name}",
                "name a role that people assume: meks init finds yours",
                where="access.admin_role_arns",
                exit_code=USAGE,
            ) from None
        if found is None:
            tools.console.say(f"note: nobody may look up {arn} (iam:GetRole), so it is trusted")
        elif found != arn:
            raise Failure(
                Code.NO_ADMINISTRATOR,
                f"the role {name} is {found}, and an access entry takes its whole ARN",
                f"write {found}",
                where="access.admin_role_arns",
                exit_code=USAGE,
            )


def _role(aws: Aws, name: str) -> str | None:
    """Return a role's ARN; None where IAM does not say. Raises LookupError where there is none."""
    iam = aws.client("iam")
    try:
        return str(iam.get_role(RoleName=name)["Role"]["Arn"])
    except iam.exceptions.ClientError as error:
        if error_code(error) in _DENIED:
            return None
        if error_code(error) != "NoSuchEntity":
            raise
        raise LookupError(name) from error


def _sso_path(name: str) -> str:
    return "aws-reserved/sso.amazonaws.com/" if name.startswith(_SSO_ROLE) else ""
