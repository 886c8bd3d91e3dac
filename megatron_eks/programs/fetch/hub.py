"""A Hugging Face repository at one commit, through huggingface_hub."""

import fnmatch
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from megatron_eks.programs import program
from megatron_eks.programs.fetch.files import RemoteFile
from megatron_eks.programs.program import StopError

_ATTEMPTS = 4
_PAUSE_SECONDS = 2.0
_BUSY = (429, *range(500, 600))
_TOKENIZER = (
    "tokenizer*",
    "vocab*",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
    "*.tiktoken",
    # transformers looks up the tokenizer's class by the model's type.
    "config.json",
)
# The same weights once more, for other programs.
_OTHER_FORMATS = ("*.bin", "*.pt", "*.pth", "*.h5", "*.msgpack", "*.gguf", "*.onnx", "original/*")

T = TypeVar("T")


def read_token(path: Path) -> str:
    """Read a token, which no message ever shows."""
    try:
        token = path.read_text().strip()
    except FileNotFoundError as problem:
        raise StopError(
            program.EXIT_NOT_FOUND, path, "no such file", "mount the token's Secret there"
        ) from problem
    if not token or len(token.split()) != 1:
        raise StopError(
            program.EXIT_CHECK_FAILED, path, "it holds no token", "write the token and nothing else"
        )
    return token


def choose(names: Sequence[str], *, tokenizer_only: bool) -> list[str]:
    """Return the files that are wanted; of weights in several formats the safetensors."""
    if tokenizer_only:
        return [name for name in names if "/" not in name and _matches(name, _TOKENIZER)]
    if any(name.endswith(".safetensors") and "/" not in name for name in names):
        names = [name for name in names if not _matches(name, _OTHER_FORMATS)]
    return [name for name in names if name != ".gitattributes"]


class HubSource:
    """A model's repository at one commit."""

    def __init__(self, name: str, token: str | None, *, tokenizer_only: bool) -> None:
        try:
            import huggingface_hub  # noqa: PLC0415 -- `--help` and S3 need no hub
        except ImportError as problem:
            found = "not installed"
            remedy = "run this in the megatron image, or pip install huggingface_hub"
            raise StopError(program.EXIT_NOT_FOUND, "huggingface_hub", found, remedy) from problem
        self.kind = "tokenizer" if tokenizer_only else "model"
        self.name = name
        self._hub: Any = huggingface_hub
        # False: without it the library would look for tokens in places of its own.
        self._token = token or False
        api = huggingface_hub.HfApi(token=self._token)
        information = self._try(lambda: api.model_info(name, files_metadata=True))
        self.revision: str = information.sha
        stated = {each.rfilename: each for each in information.siblings}
        chosen = [stated[each] for each in choose([*stated], tokenizer_only=tokenizer_only)]
        # Of other files, which are small, the hub has git's own hash.
        sums = [each.lfs.sha256 if each.lfs else None for each in chosen]
        self.files = [
            RemoteFile(each.rfilename, each.size, sha256)
            for each, sha256 in zip(chosen, sums, strict=True)
        ]
        if not self.files:
            raise StopError(
                program.EXIT_NOT_FOUND, name, f"it has no {self.kind}", "correct the name"
            )

    def download(self, file: RemoteFile, directory: Path) -> None:
        """Fetch one file."""
        self._try(
            lambda: self._hub.hf_hub_download(
                self.name, file.path, revision=self.revision, local_dir=directory, token=self._token
            )
        )

    def _try(self, action: Callable[[], T]) -> T:
        from huggingface_hub import errors  # noqa: PLC0415 -- as in __init__

        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return action()
            except (errors.HFValidationError, errors.HfHubHTTPError) as problem:
                status = getattr(getattr(problem, "response", None), "status_code", 0)
                if status not in _BUSY:
                    raise self._refused(problem, status) from problem
                last: Exception = problem
            # What the HTTP library under the hub raises depends on the hub's version.
            except Exception as problem:
                if isinstance(problem, OSError) and problem.errno and problem.filename:
                    raise
                last = problem
            if attempt < _ATTEMPTS:
                time.sleep(_PAUSE_SECONDS * 2 ** (attempt - 1))
        found = f"{type(last).__name__}: {last}"
        remedy = "see that the pod reaches it (NAT, network policy, proxy), then start again"
        raise StopError(
            program.EXIT_NOT_REACHABLE, self._hub.constants.ENDPOINT, found, remedy
        ) from last

    def _refused(self, problem: Exception, status: int) -> StopError:
        from huggingface_hub import errors  # noqa: PLC0415 -- as in __init__

        page = f"{self._hub.constants.ENDPOINT}/{self.name}"
        code, found, remedy = program.EXIT_FAILED, f"HTTP {status}", f"see whether {page} opens"
        if isinstance(problem, errors.GatedRepoError):
            have = "the token's account has no access" if self._token else "it needs a token"
            found = f"the model is gated, and {have}"
            remedy = (
                f"accept the licence at {page}, then give a read token of that account with "
                "--token-file (in the cluster: the Secret that the job's token_secret names)"
            )
        elif isinstance(problem, errors.RepositoryNotFoundError | errors.HFValidationError):
            code, found = program.EXIT_NOT_FOUND, "no such model, or a private one"
            remedy = "correct the name, or give a token that may read it with --token-file"
        return StopError(code, self.name, found, remedy)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
