"""Why a build or a launch failed: what it says means, what to do, and whether another try helps."""

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cause:
    """One kind of failure."""

    pattern: str
    """Where it shows in what was said; of builds without regard to upper and lower case."""
    found: str
    remedy: str
    passes: bool = False
    """Another try may go better, without any change."""


# The more particular ones first. Messages: moby/moby and moby/buildkit (docker), containers/image
# (podman), Amazon ECR User Guide, "Common error codes" and "Troubleshooting".
CAUSES: tuple[Cause, ...] = (
    Cause(
        r'"program": "gate", "status": "check failed"|gate\.py .*exit code: 4',
        "the gate refused what the image holds",
        "each line that begins with error says what to take instead (docs/images.md)",
    ),
    # A test may print any of the words below; 125 and 126 are the engine's own failures.
    Cause(
        r"(?:docker|podman) run failed with exit code (?!12[56]\b)",
        "the image does not pass its test",
        "the lines above and the report say what failed",
    ),
    Cause(
        r"no space left on device|disk quota exceeded",
        "the disk is full: base image, layers and the new image need some 120 GB together",
        "free disk (docker system prune -a, podman system prune -a), or build without --local: "
        "CodeBuild's machine for it has 256 GB; leave vLLM and the like out of requirements.in",
    ),
    Cause(
        r"toomanyrequests|too many requests|rate exceeded|rate limit",
        "a registry limits how often it is asked",
        "wait some minutes and try again: --retries 2, or name a copy: BASE_IMAGE in build_args",
        passes=True,
    ),
    Cause(
        r"repository .* does not exist|name unknown|RepositoryNotFoundException",
        "the registry has no such repository",
        "run meks deploy Images, which makes it",
    ),
    Cause(
        r"manifest (?:for \S+ )?(?:not found|unknown)|not found: manifest|no matching manifest",
        "a registry does not have the base image under that name",
        "look at BASE_IMAGE in build_args, or at FROM in your Dockerfile",
    ),
    Cause(
        r"no basic auth credentials|authorization token has expired|unauthorized|"
        r"authentication required|pull access denied|403 Forbidden|requested access .* denied",
        "a registry does not know who is asking, or refuses it",
        "try again, which logs in again; for ECR see that your role may push; nvcr.io and "
        "public.ecr.aws give these base images to everybody, so look at a proxy in between",
    ),
    Cause(
        r"x509: |certificate signed by unknown|certificate verify failed|SSLError",
        "a proxy's certificate is not trusted where the build runs",
        "add it to the engine's certificates (/etc/docker/certs.d), or build without --local",
    ),
    Cause(
        r"names another image already",
        "a tag that may not move names another image",
        "raise the version in pyproject.toml, commit what changed, or --tag-strategy auto",
    ),
    Cause(
        r"tag is immutable|ImageTagAlreadyExists",
        "another build pushed under this tag meanwhile, and tags do not move",
        "run meks outputs if that was yours too; else meks build again, which takes a new tag",
    ),
    Cause(
        r"sha256sum: WARNING|do not match the hashes|checksum did not match",
        "a download is not what was pinned",
        "look whether a proxy changes it; else move the pin (docs/images.md)",
    ),
    Cause(
        r"TLS handshake timeout|i/o timeout|connection reset|connection refused|"
        r"unexpected EOF|no such host|temporary failure in name resolution|"
        r"50[0234] (?:Bad Gateway|Service|Gateway|Internal)|ServiceUnavailable",
        "a registry or the network did not answer",
        "try again: --retries 2",
        passes=True,
    ),
    Cause(
        r"detected CUDA version \(\S+\) mismatches|CUDA version mismatch",
        "something is compiled with another CUDA than the base image's torch",
        "take a base image and versions that docs/images.md lists together",
    ),
    Cause(
        r"cannot connect to the docker daemon|permission denied.*docker\.sock",
        "the engine does not run, or not for you",
        "start docker (or use podman), and be in its group",
    ),
    Cause(
        r"exit code:? 137|out of memory|signal: killed", "memory ran out", "take a larger machine"
    ),
)


def cause_of(lines: Sequence[str]) -> Cause | None:
    """Return the first cause that shows in the last lines of a build; None: none that we know."""
    text = "\n".join(lines)
    return next((each for each in CAUSES if re.search(each.pattern, text, re.IGNORECASE)), None)
