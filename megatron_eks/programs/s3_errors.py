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


def judge(subject: str, problem: BaseException) -> None:
    """Raise what more attempts cannot change."""
    from botocore.exceptions import NoCredentialsError, ParamValidationError  # noqa: PLC0415 -- `--help` needs no boto3

    code, exit_code = code_of(problem), program.EXIT_FAILED
    found, remedy = str(problem), "see the S3 error code's meaning"
    if code in _GONE:
        raise GoneError(subject) from problem
    if code in _LOST_RACE:
        raise RaceError(subject) from problem
    if isinstance(problem, ParamValidationError):
        exit_code, found, remedy = program.EXIT_USAGE, " ".join(found.split()), "correct the URI"
    elif isinstance(problem, NoCredentialsError):
        found = "no AWS credentials"
        remedy = "give the pod's service account a role (Pod Identity); elsewhere set AWS_PROFILE"
    elif code == "NoSuchBucket":
        exit_code, found, remedy = program.EXIT_NOT_FOUND, "no such bucket", "correct the URI"
    elif code in _DENIED:
        found = f"S3 refuses: {problem}"
        remedy = "correct the URI, or give the role the right: for pods, name the prefix in a "
        remedy += "job file, then meks deploy Storage"
    elif not code or code in _BUSY | _DAMAGED:
        return
    raise StopError(exit_code, subject, found, remedy) from problem


def given_up(subject: str, problem: BaseException) -> StopError:
    """Return what ends a program that has tried often enough."""
    from botocore.exceptions import FlexibleChecksumError  # noqa: PLC0415 -- as above

    if code_of(problem) in _DAMAGED or isinstance(problem, FlexibleChecksumError):
        found = f"the bytes change on the way: {problem}"
        remedy = "use another node, and test this one's memory and network"
        return StopError(program.EXIT_CHECK_FAILED, subject, found, remedy)
    remedy = "see that S3 can be reached (network policy, endpoint, proxy), then start again"
    return StopError(program.EXIT_NOT_REACHABLE, subject, str(problem), remedy)


def code_of(problem: BaseException) -> str:
    """Return the code of an answer of S3's; nothing where it gave none."""
    from botocore.exceptions import ClientError  # noqa: PLC0415 -- as above

    return str(problem.response["Error"]["Code"]) if isinstance(problem, ClientError) else ""
