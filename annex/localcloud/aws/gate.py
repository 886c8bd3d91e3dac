"""Who may ask the local AWS: keys of this start, and those that it has given out since."""

import hashlib
import hmac
import io
import re

from moto.iam.models import iam_backends
from moto.sts.models import sts_backends
from werkzeug.wsgi import get_input_stream

from megatron_eks.localcloud.aws import signatures
from megatron_eks.localcloud.aws.keys import Keys
from megatron_eks.localcloud.aws.server import TOKENS_PATH
from megatron_eks.localcloud.aws.signatures import RefusedError, Sent, Signature
from megatron_eks.localcloud.aws.values import Object

# Beside AWS's own addresses: ours, and moto's.
_INTERNAL = re.compile(r"/(local-aws|moto-api)(/.*)?")
# Where moto looks at nothing but the path.
_BY_PATH = re.compile(r"/(moto-api|latest|favicon\.ico)")
_BEARER = "Bearer "
_HASH = re.compile("[0-9a-f]{64}")


class Gate:
    """Lets requests in by their signatures."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._review_path = f"{TOKENS_PATH}/{keys.reviewer}".encode()

    def admit(self, environ: Object) -> Object:
        """Return a request as the services take it; raise RefusedError if it is a stranger's."""
        path = str(environ.get("PATH_INFO", ""))
        if hmac.compare_digest(path.encode("latin-1"), self._review_path):
            return {**environ, "PATH_INFO": TOKENS_PATH}
        if _INTERNAL.fullmatch(path):
            given = str(environ.get("HTTP_AUTHORIZATION", ""))
            secret = f"{_BEARER}{self._keys.administrator.secret_access_key}"
            if not hmac.compare_digest(given.encode("latin-1"), secret.encode()):
                raise RefusedError("AccessDenied", "this address takes the secret key as its token")
            return environ
        body = get_input_stream(environ).read()
        sent = _sent(environ, body)
        found = signatures.signature(sent)
        self.check(sent, found)
        signatures.check_time(sent, found)
        if self.is_pods(found) and (found.service != "s3" or _BY_PATH.match(path)):
            raise RefusedError("AccessDenied", f"pods may not use {found.service}: they have S3")
        # moto finds the service by this header. Without it, it would guess by path and content.
        return {
            **environ,
            "HTTP_AUTHORIZATION": found.authorization,
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.input": io.BytesIO(body),
        }

    def check(self, sent: Sent, found: Signature) -> None:
        """Raise RefusedError if no key that is known here has signed a request."""
        secret, token = self._secret(found.key)
        signatures.check(sent, found, secret)
        if not hmac.compare_digest(found.token.encode(), token.encode()):
            raise RefusedError("InvalidClientTokenId", "the session token is not the key's")

    def is_pods(self, found: Signature) -> bool:
        """Say whether a signature is one of the pods'."""
        return found.key == self._keys.pods.access_key_id

    def _secret(self, key: str) -> tuple[str, str]:
        for each in (self._keys.administrator, self._keys.pods):
            if each.access_key_id == key:
                return each.secret_access_key, ""
        for partitions in list(sts_backends.values()):
            for backend in list(partitions.values()):
                if role := backend.get_assumed_role_from_access_key(key):
                    return role.secret_access_key, role.session_token
        for accounts in list(iam_backends.values()):
            for users in list(accounts.values()):
                owner = users.get_user_from_access_key_id(key)
                for own in owner.access_keys if owner else ():
                    if (own.access_key_id, own.status) == (key, "Active"):
                        return own.secret_access_key, ""
        raise RefusedError(
            "InvalidClientTokenId",
            "this access key is not one of this start of the local AWS - take the environment that "
            "`meks local up` prints",
        )


def _sent(environ: Object, body: bytes) -> Sent:
    path, _, query = str(environ.get("RAW_URI") or environ.get("REQUEST_URI") or "").partition("?")
    headers = {
        key.removeprefix("HTTP_").replace("_", "-").lower(): str(value)
        for key, value in environ.items()
        if key.startswith("HTTP_") or key in {"CONTENT_TYPE", "CONTENT_LENGTH"}
    }
    own = hashlib.sha256(body).hexdigest()
    told = headers.get("x-amz-content-sha256", "")
    if _HASH.fullmatch(told) and told != own:
        raise RefusedError("XAmzContentSHA256Mismatch", "the content is not what was signed")
    return Sent(str(environ["REQUEST_METHOD"]), path, query, headers, told or own)
