"""Which names sound as if their values were secret, however they are written and joined."""

import re
from functools import lru_cache

_SIGNS = re.compile(r"[^a-z0-9]|\d+$")
# Of language models, and what only counts or names tokens.
_HARMLESS = re.compile(
    r"tokeni[sz]\w*|(bos|eos|eod|pad|unk|sep|cls|mask|special|stop|per|num|max|min)tokens?(ids?)?"
    r"|tokensper\w+|embedtokens?\w*|requesttoken|nosuchkey|pub(lic)?keys?|(forward|backward|first|second|by)pass|compat"
)
_SECRET = re.compile(
    r"secret|token|passw|passphrase|passcode|credential|authorization|cookie|bearer|webhookurl"
    r"|(api|access|private|ssh|signing|encryption|master|account|shared|storage|deploy|license"
    r"|client|host|service|subscription)key|keydata|connectionstring|dockerconfig|kubeconfig"
    r"|csrf|xsrf|sessionid|mnemonic|seedphrase"
    r"|(pass|pw|pwd|psw|tok|tkn|psk|pat|sas|auths?|otp|jwt|creds?|key|keyid|dsn|signature)$"
)
# They say where a secret is or what became of it, and not which.
_PLACE = re.compile(
    r"(name|names|ref|path|file|dir|type|mount|count|length|size|seconds|error|exception)$"
)
_BARE = frozenset({"key", "keys"})
"""Without anything before it this word names fields of everything."""


@lru_cache(maxsize=4096)
def sounds_secret(name: str) -> bool:
    """Say whether the value of a name is nobody else's business."""
    squeezed = _HARMLESS.sub("", _SIGNS.sub("", name.lower()))
    if squeezed in _BARE or _PLACE.search(squeezed):
        return False
    return _SECRET.search(squeezed) is not None
