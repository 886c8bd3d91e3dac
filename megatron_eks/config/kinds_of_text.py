"""What a text of a wrong form is: the ARN or id of something else, or a placeholder."""

import re

from megatron_eks.config.hints.slips import PLACEHOLDER

# AWS General Reference, "Amazon Resource Names (ARNs)".
_ARN = re.compile(r"arn:aws[a-z-]*:([a-z0-9-]+):[a-z0-9-]*:([0-9]*):([a-z-]+)([:/].*)?")
_ACCOUNT_DIGITS = 12
# EC2 User Guide, "Resource IDs": 8 or 17 hexadecimal digits behind the name of the kind.
_ID = re.compile(r"([a-z]{1,8})-([0-9A-Za-z]+)")
_KINDS = {
    "ami": "an AMI",
    "cb": "a Capacity Block",
    "cr": "a capacity reservation",
    "crf": "a fleet of reservations",
    "eni": "a network interface",
    "fs": "a file system",
    "fsvol": "a volume of FSx",
    "i": "an instance",
    "igw": "an internet gateway",
    "lt": "a launch template",
    "pg": "a placement group",
    "rtb": "a route table",
    "sg": "a security group",
    "subnet": "a subnet",
    "vpc": "a VPC",
}
_ARN_KINDS = {
    "alias": "an alias",
    "assumed-role": "a session of a role",
    "federated-user": "a session of a user",
    "group": "a group of users",
    "instance-profile": "an instance profile",
    "policy": "a policy",
    "role": "a role",
    "root": "a whole account",
    "secret": "a secret",
    "user": "a user",
}


def what(text: str, pattern: str) -> str:
    """Say what is wrong with a text of another form, as the end of a sentence."""
    if PLACEHOLDER.search(text):
        return "holds a place that nobody filled in"
    if found := _ARN.fullmatch(text):
        return _of_arn(found[1], found[2], found[3], pattern)
    if (found := _ID.fullmatch(text)) and found[1] in _KINDS and "[0-9a-f]" in pattern:
        return _of_id(found[1], found[2], pattern)
    return _DEFAULT


def _of_arn(service: str, account: str, kind: str, pattern: str) -> str:
    if account and len(account) != _ACCOUNT_DIGITS:
        return f"has an account of {len(account)} digits, and AWS's have {_ACCOUNT_DIGITS}"
    if not pattern.startswith("^arn:"):
        return "is an ARN, and the name, id or URI alone belongs here"
    if f":{kind}/" in pattern:
        return _DEFAULT
    known = _ARN_KINDS.get(kind)
    return f"is the ARN of {known}" if known else f"is an ARN of {service}: {kind}"


def _of_id(prefix: str, rest: str, pattern: str) -> str:
    if f"^{prefix}-" not in pattern:
        return f"is the id of {_KINDS[prefix]}"
    wrong = re.sub("[0-9a-f]", "", rest)
    if wrong:
        return f"holds {wrong[0]!r}, and ids have 0 to 9 and a to f"
    return f"has {len(rest)} signs behind its hyphen, and ids have 17, or as old ones 8"


_DEFAULT = "is not in the right form"
