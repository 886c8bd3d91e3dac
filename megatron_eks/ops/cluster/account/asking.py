"""How facts are asked for: a refusal of one leaves the others, and is told with its permission."""

from collections.abc import Callable
from typing import TypeVar

from botocore.client import BaseClient
from botocore.exceptions import ClientError

from megatron_eks.config.codes import Code
from megatron_eks.ops.aws.session import Aws, error_code, explained
from megatron_eks.ops.checks import Unknown

_Found = TypeVar("_Found")


class Asking:
    """Questions to AWS, and what stayed without an answer."""

    def __init__(self, aws: Aws, unknown: list[Unknown]) -> None:
        self.aws = aws
        self.check = ""
        """The name of the check that is asked for."""
        self._unknown = unknown

    def __call__(self, what: str, question: Callable[[], _Found]) -> _Found | None:
        """Return the answer; None where AWS refuses it, which is noted.

        Raises what boto3 raises where no other question would be answered either.
        """
        try:
            return question()
        except ClientError as error:
            failure = explained(error)
            if failure.finding is Code.CREDENTIALS:
                raise
            why = failure.found
            if error_code(error) == "UnauthorizedOperation":
                # EC2 names no action in clear; it is that of the request.
                why = f"not allowed: ec2:{error.operation_name}"
            self.note(what, why, failure.remedy)
            return None

    def note(self, what: str, why: str, remedy: str) -> None:
        """Note what is not known."""
        self._unknown.append(Unknown(self.check, f"{what}: {why}", remedy))

    def client(self, service: str) -> BaseClient:
        """Return the client of a service."""
        return self.aws.client(service)
