"""`meks secret`: tokens of the jobs, put into the cluster without being shown anywhere."""

import base64
import getpass
import re
import warnings
from collections.abc import Iterator
from http import HTTPStatus
from io import TextIOWrapper

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import TOKEN
from megatron_eks.kubernetes.client import ApiError, Client
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import DONE, FAILED, NOT_FOUND, USAGE, Failure
from megatron_eks.project import Project

# What Kubernetes takes for a Secret's name and for a key in it.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_LONGEST_NAME = 253

# The API server takes 1 MiB of base64 at most; a token has 40 bytes.
_LONGEST_BYTES = 512 * 1024

# Where kubectl's `apply` keeps the values that it was given, readable by whoever reads the object.
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_MERGE = "application/merge-patch+json"


def set_value(client: Client, project: Project, name: str, key: str, console: Console) -> int:
    """Read a value from standard input, or ask for it without echo, and store it under a key."""
    _check_words(name, key)
    namespace = project.cluster.platform.namespace
    if client.find("v1", "Namespace", namespace) is None:
        found = f"there is no namespace {namespace}"
        raise Failure(Code.PLATFORM_MISSING, found, "install the platform: meks apply")
    value = _value(name, key, console)
    verb = _store(client, namespace, name, {key: base64.b64encode(value).decode()})
    console.say(f"{verb} Secret {namespace}/{name}, key {key}")
    for line in _used(project, name, key):
        console.say(line)
    return DONE


def remove(client: Client, project: Project, name: str, console: Console) -> int:
    """Ask, saying who needs it, and delete a Secret."""
    _check_words(name, "")
    namespace = project.cluster.platform.namespace
    if client.find("v1", "Secret", name, namespace) is None:
        there = [each["metadata"]["name"] for each in client.list("v1", "Secret", namespace)]
        found, remedy = f"no Secret {name} in namespace {namespace}", ", ".join(there) or "none"
        raise Failure(Code.SECRET_NOT_FOUND, found, f"there: {remedy}", exit_code=NOT_FOUND)
    for line in _used(project, name, None):
        console.say(line)
    if not console.confirm(f"Delete Secret {namespace}/{name}?"):
        console.say("nothing was changed")
        return FAILED
    client.delete("v1", "Secret", name, namespace, missing_ok=True)
    console.say(f"deleted Secret {namespace}/{name}; whoever has the value can still use it")
    return DONE


def _check_words(name: str, key: str) -> None:
    """Refuse what is no name, without repeating it: it may be the token itself."""
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        found = "NAME is not the name of a Secret: small letters, digits, `-` and `.`"
        remedy = "take what the job file has under token_secret, such as hugging-face; if it was "
        remedy += "the token, make a new one"
        raise Failure(Code.SECRET_VALUE, found, remedy, exit_code=USAGE)
    if key and (not _KEY.fullmatch(key) or TOKEN.search(key)):
        found = "the key is none: it has other signs than letters, digits, `-`, `_` and `.`, or "
        found += "is itself a token"
        raise Failure(Code.SECRET_VALUE, found, "use --key token", exit_code=USAGE)


def _value(name: str, key: str, console: Console) -> bytes:
    value = _asked(name, key, console) if console.stdin.isatty() else _read(console)
    value = re.sub(rb"\r?\n\Z", b"", value)
    if not value.strip():
        found = "the value is empty"
        remedy = f"give it on standard input: meks secret set {name} < FILE"
        raise Failure(Code.SECRET_VALUE, found, remedy, exit_code=USAGE)
    return value


def _read(console: Console) -> bytes:
    """Read standard input as the bytes that it is."""
    stream = console.stdin.buffer if isinstance(console.stdin, TextIOWrapper) else None
    limit = _LONGEST_BYTES + 2
    value = stream.read(limit) if stream else console.stdin.read(limit).encode()
    if len(value) > _LONGEST_BYTES:
        found = f"the value is longer than {_LONGEST_BYTES // 1024} KiB"
        raise Failure(Code.SECRET_VALUE, found, "give the token alone", exit_code=USAGE)
    return value


def _asked(name: str, key: str, console: Console) -> bytes:
    with warnings.catch_warnings():
        # Where the terminal's echo cannot be switched off, getpass would read with it.
        warnings.simplefilter("error", getpass.GetPassWarning)
        try:
            return getpass.getpass(f"{key} of {name} (not shown): ", console.stderr).encode()
        except getpass.GetPassWarning:
            found = "this terminal would show what is typed"
            remedy = f"give it on standard input: meks secret set {name} < FILE"
        except EOFError:
            return b""
    raise Failure(Code.SECRET_VALUE, found, remedy, exit_code=USAGE)


def _store(client: Client, namespace: str, name: str, data: dict[str, str]) -> str:
    """Change these keys of the Secret, or create it; say which."""
    path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
    patch = {"data": data, "metadata": {"annotations": {_LAST_APPLIED: None}}}
    try:
        client.request("PATCH", path, patch, {"fieldManager": "meks"}, _MERGE)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        named = {"name": name, "namespace": namespace}
        client.create({"apiVersion": "v1", "kind": "Secret", "metadata": named, "data": data})
        return "created"
    return "changed"


def _used(project: Project, name: str, key: str | None) -> Iterator[str]:
    """Say which job files, of the team if there are teams, name a Secret, or another key of it."""
    jobs = [job for job in project.jobs if job.team == project.cluster.platform.team]
    own = [(job.name, e.key) for job in jobs for e in job.secret_entries if e.secret == name]
    fitting = [job for job, wanted in own if key in {None, wanted}]
    if fitting:
        yield f"named by {'the job' if len(fitting) == 1 else 'the jobs'} {', '.join(fitting)}"
    for job, wanted in own:
        if key not in {None, wanted}:
            yield f"note: the job {job} reads the key {wanted} of it, not {key}"
    if not own:
        yield f"no job file names it; one does with token_secret: {name}"
