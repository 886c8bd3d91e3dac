"""What S3 answers, sorted: what more attempts cannot change, where the caller can act, and why."""

from megatron_eks.programs import program
from megatron_eks.programs.program import StopError

_BUSY = {"SlowDown", "503", "500", "InternalError", "ServiceUnavailable", "RequestTimeout"}
_DAMAGED = {"BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch"}
_GONE = {"404", "NoSuchKey", "NotFound"}
_LOST_RACE = {"412", "PreconditionFailed", "409", "ConditionalRequestConflict"}
_DENIED = {"403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"}


class GoneError(Exception):
    """The object is not there, or not any more."""


class RaceError(Exception):
    """Another writer was first."""


def is_refusal(problem: BaseException) -> bool:
    """Tell whether S3 says that this may not be done."""
    from botocore.exceptions import ClientError  # noqa: PLC0415 -- `--help` needs no boto3

    refusals = {"403", "AccessDenied"}
    return isinstance(problem, ClientError) and problem.response["Error"]["Code"] in refusals


def judge(subject: str, problem: BaseException) -> None:
    """Raise what more attempts cannot change."""
    from botocore.exceptions import (  # noqa: PLC0415 -- `--help` needs no boto3
        ClientError,
        NoCredentialsError,
        ParamValidationError,
    )

    if isinstance(problem, ParamValidationError):
        raise StopError(
            program.EXIT_USAGE, subject, " ".join(str(problem).split()), "correct the URI"
        ) from problem

    if isinstance(problem, NoCredentialsError):
        raise StopError(
            program.EXIT_FAILED,
            subject,
            "no AWS credentials",
            "give the pod's service account a role (Pod Identity); elsewhere set AWS_PROFILE",
        ) from problem
    if not isinstance(problem, ClientError):
        return
    code = problem.response["Error"]["Code"]
    if code == "NoSuchBucket":
        raise StopError(
            program.EXIT_NOT_FOUND, subject, "no such bucket", "correct the URI"
        ) from problem
    if code in _GONE:
        raise GoneError(subject) from problem
    if code in _LOST_RACE:
        raise RaceError(subject) from problem
    if code in _DENIED:
        raise StopError(
            program.EXIT_FAILED,
            subject,
            f"S3 refuses: {problem}",
            "correct the URI, or give the role the right: for pods, name the prefix in a job "
            "file, then meks deploy Storage",
        ) from problem
    if code not in _BUSY | _DAMAGED:
        raise StopError(
            program.EXIT_FAILED, subject, str(problem), "see the S3 error code's meaning"
        ) from problem


def given_up(subject: str, problem: BaseException) -> StopError:
    """Return what ends a program that has tried often enough."""
    from botocore.exceptions import ClientError, FlexibleChecksumError  # noqa: PLC0415 -- `--help` needs no boto3

    code = problem.response["Error"]["Code"] if isinstance(problem, ClientError) else ""
    if code in _DAMAGED or isinstance(problem, FlexibleChecksumError):
        return StopError(
            program.EXIT_CHECK_FAILED,
            subject,
            f"the bytes change on the way: {problem}",
            "use another node, and test this one's memory and network",
        )
    return StopError(
        program.EXIT_NOT_REACHABLE,
        subject,
        str(problem),
        "see that S3 can be reached (network policy, endpoint, proxy), then start again",
    )
