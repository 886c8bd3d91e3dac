"""Keys and tokens of known services, and other secrets that their form gives away."""

import re
from functools import lru_cache

# What each service documents as the beginning of its keys, as the scanners gitleaks and
# trufflehog collect them; shorter than any real one, so that a piece of one is found as well.
FORMS = {
    "private keys": re.compile(
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----.*?(?:-----END [A-Z0-9 ]*-----|\Z)"
        r"|PuTTY-User-Key-File.*|AGE-SECRET-KEY-\w+",
        re.DOTALL,
    ),
    "AWS keys": re.compile(
        r"(?<![A-Za-z0-9])(?:AKIA|ASIA|AROA|AIDA|ABIA|ACCA)[A-Z0-9]{6,}"
        r"|(?<![A-Za-z0-9])(?:IQoJ|FwoG|FQoG)[\w+/=%-]{6,}"
    ),
    "tokens": re.compile(
        r"\beyJ[\w-]{6,}(?:\.[\w-]*){0,4}"  # JSON Web Tokens, such as service accounts'
        r"|\bk8s-aws-v1\.[\w-]+"
        r"|\b(?:hf|api_org|npm|ntn|r8|gsk|dop_v1|doo_v1|dckr_[po]at|shp[a-z]{2}|lin_api|wandb_v\d"
        r"|rubygems|figd|xkeysib|gl(?:sa|c)|phc|ops|tfp|fw|tgp_v1|vercel|sbp|CCIPAT|sntry[su]"
        r"|rpa|bkua|pscale_(?:tkn|pw)|dt0c01|nfp|cio)_(?=[\w-]*[A-Z0-9])[\w-]{6,}"
        r"|\b(?:gh[pousr]_|github_pat_|gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat|ffct)-"
        r"|xox[a-z]-|xapp-|xwfp-|nvapi-|pypi-|tskey-|PMAK-"
        r"|sq0[a-z]{3}-|pul-|xai-|pplx-|csk-|pat-[a-z]+\d-|NRAK-|HRKU-|AKCp)"
        r"[\w-]{6,}"
        r"|\b(?:sk|pk|rk)[-_](?=[\w-]*[A-Z0-9])[\w-]{6,}|\bwhsec_\w{6,}"
        r"|\bAIza[\w-]{6,}|\bya29\.[\w.-]{6,}|\bGOCSPX-[\w-]{6,}|\b1//0[\w-]{10,}"
        r"|\bAT(?:A|C)TT[\w=-]{6,}|\bdp\.(?:pt|st|ct)\.[\w.-]{6,}|\bsha256~[\w-]{6,}"
        r"|\b[\w-]{6,20}\.atlasv1\.[\w-]+|\bcmVmdGtu\w{6,}|\bhv[sbr]\.[\w-]{6,}"
        r"|\bSG\.[\w-]{6,}(?:\.[\w-]+)?"
        r"|\bdapi[0-9a-f]{16,}|\bSK[0-9a-f]{32}\b|\bkey-[0-9a-f]{32}\b"
        r"|\b(?=[a-z0-9.]*\d)[a-z0-9]{6}\.[a-z0-9]{16}\b"
        r"|\$(?:2[aby]|5|6|y|apr1|argon2\w*|pbkdf2\w*)\$\S+|\{S?SHA\w*\}\S+"
        r"|(?<=[Bb]earer )\s*[\w.~+/=-]{4,}|(?<=BEARER )\S{4,}"
        r"|(?<=[Bb]asic )\s*(?=\S*[A-Z0-9=])[\w+/=]{6,}"
        r"|(?<=[?&;, ]sig=)[^\s&]+|(?<=[?&;, ]Signature=)[^\s&]+"
    ),
    "passwords in addresses": re.compile(
        r"(?<=://)[^\s\"'<>]*(?=@)"  # of databases, proxies and remotes, with or without a name
        r"|(?<=:thin:)[^\s@]+(?=@)"
        r"|(?:(?<=[\s\"'=(])|^)[\w.+-]+:[^\s:@/\"']+(?=@(?!sha\d)[\w(.-])",
        re.MULTILINE,
    ),
    "queries of addresses": re.compile(
        r"(?<=://)([^\s\"'<>?]*\?)[^\s\"'<>]+|(?<=://)([^\s\"'<>#]*#)[^\s\"'<>]*=[^\s\"'<>]*"
        r"|(?<=[\w/])(\?)[\w.-]+=[^\s\"'<>]+"
    ),
    "webhooks": re.compile(
        r"(?<=://)([\w.-]*(?:hooks?|discord|telegram|ntfy|hc-ping|webhook)[\w.-]*(?<!\.svc)"
        r"(?::\d+)?/)[^\s\"'<>]+|(?<=://)([\w.-]+/)(?:[^\s\"'<>]*webhook|bot\d+:)[^\s\"'<>]+"
    ),
}
_LONG, _DIGITS = 14, 3
RANDOM = re.compile(r"(?<![\w/+=.-])[A-Za-z0-9+/_=-]{32,}")
WRAPPED = re.compile(
    r"(?:^[ \t]*[A-Za-z0-9+/]{60,}[ \t]*\n)+[ \t]*[A-Za-z0-9+/]+={0,2}[ \t]*$", re.MULTILINE
)
"""Lines of base64, as programs wrap it."""
PASSWORD_FILE = re.compile(
    r"(?<![\w.-])(?:[\w-]+\.[\w.-]+|localhost|\*):(?:\d{2,5}|\*):[\w.*-]+:[\w.*-]+:(?=\S)"
)
"""A line of `.pgpass`."""
COMMAND = re.compile(
    r"\b(?:curl|wget|sshpass|mysql\w*|psql|redis-cli|mongosh?|ldapsearch|aria2c)\s+(?=.*-|\\)"
    r"|\b(?:wandb|huggingface-cli|hf(?: auth)?|docker|podman|npm|gh auth|az|ngc|vault|oc|kaggle)"
    r"\s+(?:login|config set)\s"
    r"|(?:\blogin|\bToken|SecretStr|SecretBytes)\((?=\s*\S*[\"'\d])"
    r"|\busername\W{2,9}[\w.@+-]+\W{2,9}key\W{2,9}"  # kaggle.json
    r"|\b(?i:headers)\W{1,6}\{|[\"'](?i:env)\\*[\"']\s*:\s*[\[{]"
    r"|(?:^|\\n|[\s\"])(?:Args|Command|Environment):\s*(?:$|\\+n)"
    r"|\b(?:echo|printf)\s+(?=.*\|)|\bopenssl\s+(?:enc|pkcs\w+|rsa)\s|\b(?:un)?zip\s+(?=.*-P)"
    r"|\b7z\s+\w\s+(?=.*-p)|\bmc\s+alias\s+set\s"
)
"""Programs and functions that are given secrets without a name, and fields that hold them."""
_A_VALUE = r"[\"'`]?(?=[\w+/=-]*\d)(?=[\w+/=-]*[A-Za-z])[\w+/=-]{6,}(?![\w]|\.\w)"
SAID = re.compile(
    r"\b(?:password|passwd|passphrase|passcode|pwd)"
    r"(?:'s)?\s+(?=(?:(?:is|was|to|for\s+\S+(?:\s+is)?)\s+)?\S)"
    r"|\b[\w-]*(?:token|secret|key|credential|authorization|auth)s?"
    r"\\*[\"'`]?(?:\s|\\t|[,;](?=\S))+"
    r"(?=(?:(?:is|was|set|to|has|value|of)\s+|(?:is|was):\s*|"
    rf"(?:passed|given|provided|supplied|received|used|rejected):\s*)*\\*{_A_VALUE})",
    re.IGNORECASE,
)
"""A secret behind its name in a sentence, or in `.netrc`."""


def looks_random(word: str) -> bool:
    """Say whether a long word looks drawn by lot, and is no path, number or symbol of a library."""
    longest = max(re.split("[/_=-]", word), key=len)
    mixed = any(map(str.isupper, longest)) and any(map(str.islower, longest))
    digits = sum(map(str.isdigit, longest))
    return len(longest) >= _LONG and mixed and digits >= _DIGITS and not word.startswith("_Z")


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
