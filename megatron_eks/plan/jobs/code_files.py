"""Which files of a user's folder go to the pods: patterns, secrets, junk, and what is too large."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

LARGEST_FILE_BYTES = 2**20
MOST_FILES = 20_000
"""Of a folder that somebody meant to name."""
MOST_ARCHIVE_BYTES = 700 * 1024
"""Of the archive: with this project's programs it has to fit a ConfigMap of 1 MiB."""
MOST_SENT_BYTES = 256 * 2**20
"""Of one that goes through the bucket: every pod unpacks it into its own /tmp."""

_SECRETS = (
    ".env .env.* *.pem *.key *.p12 *.pfx id_rsa* id_ed25519* id_ecdsa* .netrc .npmrc .pypirc "
    ".git-credentials .aws/ .ssh/ .kube/ .docker/ kubeconfig credentials.json "
    "service-account*.json application_default_credentials.json"
)
_DATA = (
    "*.pt *.pth *.ckpt *.safetensors *.bin *.idx *.distcp *.gguf *.onnx *.npy *.npz *.h5 *.parquet "
    "*.arrow *.tar *.tar.* *.tgz *.zip *.zst *.so core.[0-9]* wandb/ mlruns/ lightning_logs/"
)
_JUNK = (
    ".git .hg/ .svn/ __pycache__/ *.py[cod] .venv/ venv/ env/ .conda/ node_modules/ .tox/ .nox/ "
    ".*_cache/ .cache/ .ipynb_checkpoints/ *.egg-info/ .idea/ .vscode/ .DS_Store *~ .*.sw[op]"
)


@dataclass(frozen=True)
class Pattern:
    """One line of a .gitignore, below the folder that it stands in."""

    text: str
    why: str
    base: str = ""
    """The file's folder with a slash at its end, from where names begin; nothing for the top."""

    @property
    def leaves_out(self) -> bool:
        """Tell whether what it knows stays here; otherwise it takes it in again."""
        return not self.text.startswith("!")

    def knows(self, name: str, *, is_folder: bool) -> bool:
        """Tell whether it is about a file or folder."""
        body = self.text.removeprefix("!")
        if not name.startswith(self.base) or (body.endswith("/") and not is_folder):
            return False
        return _expression(body).fullmatch(name.removeprefix(self.base)) is not None


def own_patterns() -> Iterator[Pattern]:
    """Yield what stays here unless code.exclude takes it in again by `!NAME`."""
    for why, texts in (("junk", _JUNK), ("data", _DATA), ("a secret", _SECRETS)):
        yield from (Pattern(text, why) for text in texts.split())


def patterns(lines: Iterable[str], why: str, base: str = "") -> Iterator[Pattern]:
    """Read a .gitignore, or the list of code.exclude."""
    for line in lines:
        text = re.sub(r"(?<!\\)\s+$", "", line)
        if text and not text.startswith("#"):
            yield Pattern(text, why, base)


def decision(name: str, every: Sequence[Pattern], *, is_folder: bool) -> Pattern | None:
    """Return the pattern that decides about a file or folder: the last one that knows it."""
    return next((each for each in reversed(every) if each.knows(name, is_folder=is_folder)), None)


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    """Translate a pattern of git (gitignore(5)); a slash within ties it to its folder."""
    body = pattern.rstrip("/")
    anywhere = "/" not in body
    body = body.removeprefix("/")
    out, at = "(?:.*/)?" if anywhere else "", 0
    while at < len(body):
        if found := re.match(r"\*\*/|/\*\*$|\*+|\?|\[[!^]?\]?[^]]*\]|\\?.", body[at:], re.DOTALL):
            token = found[0]
            out += _token(token)
            at += len(token)
    try:
        return re.compile(out, re.DOTALL)
    except re.error:  # such as [z-a], which names nothing for git either
        return re.compile("(?!)")


def _token(token: str) -> str:
    known = {"**/": "(?:.*/)?", "/**": "/.*", "?": "[^/]"}
    if token in known:
        return known[token]
    if token.startswith("*"):
        return "[^/]*"
    if token.startswith("[") and len(token) > 1:
        inner = token[1:-1].replace("\\", r"\\")
        return f"[^/{inner[1:]}]" if inner[:1] in {"!", "^"} else f"[{inner}]"
    return re.escape(token[-1])
