"""What the values of outputs.json may be: other hands than the CDK's may have written the file."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding

_SHOWN = 60
_REMEDY = "remove the file, then write it anew: meks outputs"

# FSx, EFS, EC2 and CodeBuild API references; S3 User Guide, "General purpose bucket naming rules".
_FORMS: tuple[tuple[str, str, str], ...] = (
    (r"LustreId\w*", r"fs-[0-9a-f]{8,17}", "fs- and 8 to 17 hexadecimal digits"),
    (r"LustreMountName\w*", r"[A-Za-z0-9_-]{1,8}", "1 to 8 letters and digits"),
    (r"EfsId", r"fs-[0-9a-f]{8,40}", "fs- and hexadecimal digits"),
    (r"EfsAccessPointId", r"fsap-[0-9a-f]{8,40}", "fsap- and hexadecimal digits"),
    (r"BastionId", r"i-[0-9a-f]{8,17}", "i- and hexadecimal digits"),
    (r"BucketName", r"(?!.*\.\.|[0-9.]+$)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", "a bucket's name"),
    (r"\w+BuildProject", r"[A-Za-z0-9][A-Za-z0-9_-]{1,254}", "the name of a build project"),
)
# What the CDK hands from stack to stack, and what newer versions add.
_OTHER = (r"[ -~]{0,4096}", "one line of ASCII")
_DNS_KEY = "LustreDnsName"
_ROLE = re.compile(r"arn:aws[a-z-]*:iam::([0-9]{12}):role/")
_REGION = r"[a-z]{2}(-[a-z]+)+-[0-9]"
# distribution/reference, "Grammar"; ECR API Reference, CreateRepository and ImageIdentifier.
_IMAGE = r"(/[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*)+(:\w[\w.-]{0,127})?(@sha256:[0-9a-f]{64})?"


@dataclass(frozen=True)
class Home:
    """Where a cluster is, as its own file says it."""

    region: str
    accounts: Collection[str]
    """Those of its administrators' roles; none if the cluster's file has only AWS's example."""

    def settled(self, stacks: Iterable[Mapping[str, object]]) -> "Home":
        """Return the account of the jobs' role where no other is known: values agree on one."""
        roles = (_ROLE.match(str(each.get("JobRoleArn", ""))) for each in stacks)
        return self if self.accounts else Home(self.region, [each[1] for each in roles if each])


def check_values(
    stack: str, values: Mapping[str, str], images: Collection[str], home: Home | None
) -> Iterator[Finding]:
    """Yield which values are not what AWS calls such a thing, or lie in another account or region.

    `images` are the keys of the cluster's own images; without a home any place is right.
    """
    for key, value in values.items():
        form, allowed = _form(key, values, images, home)
        if re.fullmatch(form, value, re.ASCII) is None:
            shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}..."
            found = f"{shown!r} is not {allowed}"
            yield Finding(Code.OUTPUTS_MALFORMED, (stack, key), found, _remedy(key, images))


def _form(
    key: str, values: Mapping[str, str], images: Collection[str], home: Home | None
) -> tuple[str, str]:
    """Return the pattern of a value, and what it is in words."""
    region = re.escape(home.region) if home else _REGION
    place = f" in {home.region}" if home else ""
    known = sorted(home.accounts) if home else []
    accounts, owner = "[0-9]{12}", ""
    if known:
        accounts, owner = f"({'|'.join(known)})", f" of account {' or '.join(known)}"
    if key in images:
        registry = rf"{accounts}\.dkr\.ecr\.{region}\.amazonaws\.com(\.cn)?"
        return registry + _IMAGE, f"an image in ECR{owner}{place}"
    if key == "JobRoleArn":
        return rf"arn:aws[a-z-]*:iam::{accounts}:role/[\w+=,.@/-]+", f"the ARN of a role{owner}"
    if key.startswith(_DNS_KEY):
        number = values.get(f"LustreId{key.removeprefix(_DNS_KEY)}", "")
        # FSx User Guide, "Mounting"; the second form stands in the API's own examples.
        name = rf"{re.escape(number)}\.fsx\.{region}\.(amazonaws\.com(\.cn)?|aws\.internal)"
        return name, f"the DNS name of {number or 'a file system'}{place}"
    forms = ((form, allowed) for name, form, allowed in _FORMS if re.fullmatch(name, key))
    return next(forms, _OTHER)


def _remedy(key: str, images: Collection[str]) -> str:
    if key in images:
        return f"{_REMEDY}; an image of another registry belongs in `image` of a job file"
    return _REMEDY
