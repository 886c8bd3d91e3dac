"""What a text of a wrong form names: the right thing in another way, or something else."""

import re
from collections.abc import Callable, Iterator

from megatron_eks.catalog.bridge_recipes import RECIPES
from megatron_eks.config.hints.slips import PLACEHOLDER
from megatron_eks.config.model import (
    DNS_LABEL,
    KMS_ARN,
    KUBERNETES,
    RECIPE,
    REGION,
    REPOSITORY_PREFIX,
    RESERVATION,
    RESERVATION_OR_GROUP,
    ROLE_ARN,
    ZONE,
)

_ARN = re.compile(r"arn:aws[a-z-]*:([a-z0-9-]+):[a-z0-9-]*:[0-9]*:(.+)")
# IAM User Guide, "IAM identifiers": the ARN of a session leaves out the path of its role, and an
# access entry of EKS takes the role's own.
_SESSION = re.compile(r"arn:aws[a-z-]*:sts::[0-9]{12}:assumed-role/([^/]+)/.+")
_PERSON = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:(user/.+|root)")
_ROLE_NAME = re.compile(r"(?:role/)?([A-Za-z0-9_+=,.-]{1,64})")
# KMS API, DescribeKey.KeyId: all the ways to name a key.
_KEY = re.compile(
    r"(arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:)?alias/[A-Za-z0-9/_-]+|"
    r"mrk-[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)
# EC2 API, PurchaseCapacityBlock: it takes the id of an offering, and answers with a reservation's.
_BLOCK = re.compile(r"cb-[0-9a-f]+")
_GROUP = re.compile(r"arn:aws[a-z-]*:resource-groups:")
_LOCAL_ZONE = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9]-[a-z]{3}-[0-9][a-z]")
_ZONE_ID = re.compile(r"[a-z]{3,4}[0-9]-az[0-9]+")

# A function of megatron.bridge.recipes with its module, and names with the signs of a model's.
_OF_MODULE = re.compile(r"(?:[a-z_][a-z0-9_]*[.:])+([a-z][a-z0-9_]*_config)(?:\(\))?")
_RELEASE = re.compile(r"v?(1\.[0-9]{2})(\.[0-9]+|-eks.*)?", re.IGNORECASE)
_NOTHING = frozenset({"none", "nil", "null", "n/a"})
_LOWERCASE = frozenset(
    {DNS_LABEL, REGION, REPOSITORY_PREFIX, RESERVATION, RESERVATION_OR_GROUP, ZONE}
)
_MADE_HERE = frozenset({DNS_LABEL, REPOSITORY_PREFIX})
_ZONE_NAME = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9][a-z]")

# AWS General Reference, "Amazon Resource Names (ARNs)".
_PARTS = re.compile(r"arn:aws[a-z-]*:([a-z0-9-]+):[a-z0-9-]*:([0-9]*):([a-z-]+)([:/].*)?")
_ACCOUNT_DIGITS = 12
# EC2 User Guide, "Resource IDs": 8 or 17 hexadecimal digits behind the name of the kind.
_ID = re.compile(r"([a-z]{1,8})-([0-9A-Za-z]+)")
_HEX = re.compile("[0-9a-f]{8}|[0-9a-f]{17}")
_WRONG = "is not in the right form"


def of_value(text: str, pattern: str) -> str | None:
    """Say what to write in place of a text that is another name of what is meant."""
    known = _FINDERS[pattern](text) if pattern in _FINDERS else None
    written = (*_signs(text, pattern), *_others(text))
    others = (f"write {value}{why}" for value, why in written if re.search(pattern, value))
    nothing = "leave it out, or write null" if text.lower() in _NOTHING else None
    return known or next(others, None) or nothing


def what(text: str, pattern: str) -> str:
    """Say what is wrong with a text of another form, as the end of a sentence."""
    if PLACEHOLDER.search(text):
        return "holds a place that nobody filled in"
    if found := _PARTS.fullmatch(text):
        return _of_arn(found[1], found[2], found[3], pattern)
    if (found := _ID.fullmatch(text)) and "[0-9a-f]" in pattern:
        return _of_id(found[1], found[2], pattern)
    return _WRONG


def _of_arn(service: str, account: str, kind: str, pattern: str) -> str:
    if account and len(account) != _ACCOUNT_DIGITS:
        return f"has an account of {len(account)} digits, and AWS's have {_ACCOUNT_DIGITS}"
    if not pattern.startswith("^arn:"):
        return "is an ARN, and the name, id or URI alone belongs here"
    if f":{kind}/" in pattern:
        return _WRONG
    return f"is an ARN of {service}: {kind}"


def _of_id(prefix: str, rest: str, pattern: str) -> str:
    if f"^{prefix}-" not in pattern:
        return f"is the id of something else, {prefix}-..." if _HEX.fullmatch(rest) else _WRONG
    wrong = re.sub("[0-9a-f]", "", rest)
    if wrong:
        return f"holds {wrong[0]!r}, and ids have 0 to 9 and a to f"
    return f"has {len(rest)} signs behind its hyphen, and ids have 17, or as old ones 8"


def _signs(text: str, pattern: str) -> Iterator[tuple[str, str]]:
    """Yield a name in the signs that its form has: capitals and blanks are often slips.

    Only names that are made here may change: a bucket or branch of that name exists elsewhere.
    """
    if text.strip() != text:
        yield text.strip(), ", without the blanks around it"
    if text[-1:] in {",", ";"}:
        yield text.rstrip(",;"), f", without the {text[-1]} at its end"
    if text[:1] in {"'", '"'} and text[-1] == text[0]:
        yield text.strip(text[0]), ", in one pair of quotes"
    if pattern in _LOWERCASE and text != text.lower():
        yield text.lower(), ", in lowercase"
    if pattern in _MADE_HERE:
        yield re.sub("[_ ]+", "-", text.strip().lower()).strip("-"), ""
        yield f"{re.sub('[_ ]+', '-', text.strip('-_ ').lower())}-", ""


def _role(text: str) -> str | None:
    """Name a command that prints the role of a session; people and root are no roles."""
    if _PERSON.fullmatch(text):
        return "use a role's ARN: arn:aws:iam::ACCOUNT:role/NAME; users and root are none"
    found = _SESSION.fullmatch(text) or _ROLE_NAME.fullmatch(text)
    if found is None:
        return None
    command = f"`aws iam get-role --role-name {found[1]} --query Role.Arn`"
    return f"use the role's own ARN with its path, which {command} prints"


def _reservation(text: str) -> str | None:
    """Say where the id of a reservation stands for who has a block's."""
    if _BLOCK.fullmatch(text):
        command = "`aws ec2 describe-capacity-reservations`"
        return f"use the reservation's id, cr-..., which {command} prints; cb-... is the block's"
    return None


def not_yet(text: str, pattern: str) -> tuple[str, str] | None:
    """Say of what AWS has, and this project does not, that it is so, and what to use instead."""
    if pattern == ZONE and _LOCAL_ZONE.fullmatch(text):
        # EKS User Guide, "Launch low-latency EKS clusters with AWS Local Zones", read 2026-11.
        remedy = "use a zone of the region: EKS takes managed node groups there, but no subnet of "
        remedy += "the control plane, and this project's file system stands beside the nodes"
        return "a Local Zone is not supported yet", remedy
    if pattern == RESERVATION and _GROUP.match(text):
        remedy = "use the id of one, cr-...; a group goes with type: reservation"
        return "a resource group of Capacity Blocks is not supported yet", remedy
    return None


SEVERAL_RESERVATIONS = (
    "several reservations or Capacity Blocks behind one pool are not supported yet",
    "use a pool for each; of reservations, the ARN of a resource group that holds them",
)


def _key(text: str) -> str | None:
    if not _KEY.fullmatch(text):
        return None
    command = f"`aws kms describe-key --key-id {text} --query KeyMetadata.Arn`"
    return f"use the key's ARN, which {command} prints"


def _zone(text: str) -> str | None:
    if not _ZONE_ID.fullmatch(text):
        return None
    command = f"`aws ec2 describe-availability-zones --zone-ids {text}`"
    return f"use the zone's name, which {command} prints: it differs between accounts"


def _recipe(text: str) -> str | None:
    """Name a recipe that its module or file stands before, or that has a model's own signs."""
    if found := _OF_MODULE.fullmatch(text):
        return f"write {found[1]}, without its module"
    plain = re.sub(r"-", "_", text.lower().replace(".", "").removesuffix("()"))
    return f"write {plain}" if plain in RECIPES else None


def _version(text: str) -> str | None:
    found = _RELEASE.fullmatch(text)
    return f'write "{found[1]}", the minor version alone, in quotes' if found else None


def _others(text: str) -> Iterator[tuple[str, str]]:
    """Yield other ways to write a text, each with what to say of it."""
    if found := _ARN.fullmatch(text):
        if found[1] == "s3":
            yield f"s3://{found[2]}", ""
        yield re.split("[:/]", text)[-1], ", without the rest of the ARN"
    # `mount -t lustre HOST@tcp:/NAME`, as the console of FSx shows it.
    host, lustre, name = text.partition("@tcp:/")
    if lustre:
        yield host, ", which stands before @tcp"
        yield name, ", which stands behind @tcp:/"
    if text.endswith("/"):
        yield text.rstrip("/"), ", without the slash at its end"
    if text[:1] == "/" and text[1:]:
        yield text[1:], ", without the slash"
    if _ZONE_NAME.fullmatch(text):
        yield text[:-1], ": with the letter it is a zone"


_FINDERS: dict[str, Callable[[str], str | None]] = {
    KMS_ARN: _key,
    KUBERNETES: _version,
    RECIPE: _recipe,
    RESERVATION: _reservation,
    RESERVATION_OR_GROUP: _reservation,
    ROLE_ARN: _role,
    ZONE: _zone,
}
"""By pattern: what names the thing in a way from which only AWS knows the other."""
