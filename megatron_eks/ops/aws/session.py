"""One user's way to AWS: session, clients, and what their errors mean."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import boto3
from botocore import exceptions
from botocore.client import BaseClient
from botocore.config import Config

from megatron_eks.config.codes import Code
from megatron_eks.ops.failure import FAILED, NOT_REACHABLE, USAGE, Failure

# Standard mode waits longer after each refusal; the default of 3 attempts gives up within seconds.
_ATTEMPTS = 8
_CONNECT_SECONDS, _READ_SECONDS = 10, 60

_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
_REJECTED = {
    "AuthFailure",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
_DENIED = {
    "AccessDenied",
    "AccessDeniedException",
    "AuthorizationError",
    "UnauthorizedOperation",
    "UnauthorizedException",
}
_THROTTLED = {
    "RequestLimitExceeded",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "TooManyRequestsException",
}
_SKEWED = re.compile(r"Signature (not yet current|expired)")
_PERMISSION = re.compile(r"perform: ([\w-]+:\w+)")
_Answer = TypeVar("_Answer")
ERRORS = (exceptions.BotoCoreError, exceptions.ClientError)
"""What any call may raise; `explained` says what it means."""


class Aws:
    """Clients of one session in one region, each made when it is first asked for."""

    def __init__(self, session: boto3.Session, region: str) -> None:
        self._session = session
        self.region = region
        self._clients: dict[str, BaseClient] = {}

    def client(self, service: str) -> BaseClient:
        """Return the client of a service, which retries what is throttled."""
        if service not in self._clients:
            config = Config(
                retries={"mode": "standard", "max_attempts": _ATTEMPTS},
                connect_timeout=_CONNECT_SECONDS,
                read_timeout=_READ_SECONDS,
                user_agent_extra="meks",
            )
            self._clients[service] = self._session.client(
                service, region_name=self.region, config=config
            )
        return self._clients[service]

    def account(self) -> str:
        """Return the account's number; the first call that a command makes."""
        return str(self.client("sts").get_caller_identity()["Account"])


def open_session(region: str, environ: Mapping[str, str]) -> Aws:
    """Open a session in a region; a variable that names another region is refused."""
    for variable in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        other = environ.get(variable)
        if other and other != region:
            found = f"{variable} is {other}, and the cluster file says {region}"
            remedy = f"unset {variable}, or name the file of a cluster in {other} with --cluster"
            raise Failure(Code.REGION_DIFFERS, found, remedy, exit_code=USAGE)
        if other:
            break  # the first wins, as with the AWS CLI
    with explaining():
        return Aws(boto3.Session(region_name=region), region)


def region_of(wanted: str | None, environ: Mapping[str, str]) -> str:
    """Return the region where there is no cluster file yet: a flag's, a variable's, a profile's."""
    with explaining():
        found = (
            wanted
            or environ.get("AWS_REGION")
            or environ.get("AWS_DEFAULT_REGION")
            or boto3.Session().region_name
        )
    if not found:
        found_out = "no region is known"
        remedy = "add --region, or set AWS_REGION"
        raise Failure(Code.NEEDS_ANSWER, found_out, remedy, exit_code=USAGE)
    return str(found)


@contextmanager
def explaining() -> Iterator[None]:
    """Say of any error of boto3 what it means."""
    try:
        yield
    except ERRORS as error:
        raise explained(error) from error


def explained(error: Exception) -> Failure:
    """Say what an error of boto3 means, without any of its secrets."""
    if isinstance(error, exceptions.ClientError):
        return _of_service(error)
    if isinstance(error, exceptions.ProfileNotFound):
        remedy = "name one of `aws configure list-profiles` in AWS_PROFILE"
        return Failure(Code.CREDENTIALS, str(error), remedy, exit_code=USAGE)
    if isinstance(
        error,
        exceptions.NoCredentialsError
        | exceptions.PartialCredentialsError
        | exceptions.CredentialRetrievalError
        | exceptions.SSOError
        | exceptions.TokenRetrievalError,
    ):
        found = "no valid AWS credentials"
        remedy = "set AWS_PROFILE, or run `aws sso login` or `aws configure`"
        return Failure(Code.CREDENTIALS, found, remedy, exit_code=USAGE)
    if isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError):
        where = getattr(error, "kwargs", {}).get("endpoint_url", "AWS")
        found = f"no answer ({type(error).__name__})"
        remedy = "check network, proxy and AWS_ENDPOINT_URL (of meks local: meks local status)"
        return Failure(
            Code.AWS_NOT_REACHABLE, found, remedy, where=str(where), exit_code=NOT_REACHABLE
        )
    return Failure(Code.AWS_REFUSED, str(error), "correct it and try again")


def if_there(ask: Callable[..., _Answer], *codes: str, **arguments: object) -> _Answer | None:
    """Return AWS's answer; None where it says by one of some codes that there is no such thing."""
    try:
        return ask(**arguments)
    except exceptions.ClientError as error:
        # EC2 says after a dot what is wrong with an id.
        if error_code(error).partition(".")[0] not in codes:
            raise
        return None


def error_code(error: Exception) -> str:
    """Return the code of a service's refusal; nothing for any other error."""
    if not isinstance(error, exceptions.ClientError):
        return ""
    return str(error.response.get("Error", {}).get("Code", ""))


def error_message(error: Exception) -> str:
    """Return a service's own words."""
    if not isinstance(error, exceptions.ClientError):
        return str(error)
    return str(error.response.get("Error", {}).get("Message", ""))


def _of_service(error: exceptions.ClientError) -> Failure:
    code, message = error_code(error), error_message(error)
    operation = str(error.operation_name)
    if code in _EXPIRED:
        remedy = "log in again: `aws sso login`, or however you got them"
        return Failure(Code.CREDENTIALS, "the AWS credentials have expired", remedy)
    if code == "RequestTimeTooSkewed" or _SKEWED.search(message):
        found = f"this machine's clock differs from AWS's ({code})"
        return Failure(Code.CREDENTIALS, found, "set it, by NTP for example, and try again")
    if code in _REJECTED:
        found = f"AWS does not accept the credentials ({code})"
        remedy = "check AWS_PROFILE, the keys, and this machine's clock"
        return Failure(Code.CREDENTIALS, found, remedy, exit_code=FAILED)
    if code in _DENIED:
        permission = _PERMISSION.search(message)
        found = f"not allowed: {permission.group(1) if permission else operation}"
        remedy = "ask who administers the account for this permission"
        return Failure(Code.ACCESS_DENIED, found, remedy, where=operation)
    if code in _THROTTLED:
        found = f"AWS still asks for fewer requests after {_ATTEMPTS} attempts"
        return Failure(Code.THROTTLED, found, "try again in a few minutes", where=operation)
    found = f"{message or 'refused'} ({code})"
    return Failure(Code.AWS_REFUSED, found, "correct it and try again", where=operation)
