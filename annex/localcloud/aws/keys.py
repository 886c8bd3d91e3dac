"""The access keys of one start of the local AWS, and the file that hands them out."""

import configparser
import hmac
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

FILE = "aws-credentials"
"""The file's name in the folder of whatever the AWS belongs to."""

# Sections of the file; the first is the one that every SDK takes by itself.
_ADMINISTRATOR, _PODS = "default", "pods"


@dataclass(frozen=True)
class Key:
    """An access key."""

    access_key_id: str
    secret_access_key: str

    def variables(self) -> dict[str, str]:
        """Return the variables by which SDKs take it."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret_access_key,
        }


@dataclass(frozen=True)
class Keys:
    """The keys that nobody had before this start."""

    administrator: Key
    """For everything, as the owner of an account."""
    pods: Key
    """For S3 alone, which is what the programs in containers use."""

    @property
    def reviewer(self) -> str:
        """What the API server proves itself by, in an address: it sends no token without TLS."""
        secret = self.administrator.secret_access_key.encode()
        return hmac.digest(secret, b"TokenReview", "sha256").hex()

    @classmethod
    def new(cls) -> "Keys":
        """Make keys that nobody can guess."""
        return cls(_new_key(), _new_key())

    def write(self, file: Path) -> None:
        """Write a credentials file of AWS's format, which its owner alone can read."""
        parser = configparser.ConfigParser(interpolation=None)
        for name, key in ((_ADMINISTRATOR, self.administrator), (_PODS, self.pods)):
            parser[name] = {each.lower(): value for each, value in key.variables().items()}
        # Also where somebody else's file was in its place.
        file.unlink(missing_ok=True)
        number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(number, "w", encoding="utf-8") as stream:
            parser.write(stream)


def read(file: Path) -> Keys:
    """Return the keys of a file."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(file.read_text(encoding="utf-8"))
    return Keys(*(Key(*parser[name].values()) for name in (_ADMINISTRATOR, _PODS)))


def _new_key() -> Key:
    # Not of AWS's form: nobody should take it for a key that matters elsewhere.
    return Key(f"LOCALAWS{secrets.token_hex(6).upper()}", secrets.token_urlsafe(30))
