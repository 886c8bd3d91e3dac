"""What AWS chose: the file that `meks deploy` and `cdk deploy --outputs-file` write."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from megatron_eks.catalog.images import title
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, warning
from megatron_eks.config.load import Document
from megatron_eks.config.storage import ExistingLustre

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

# A registry, a repository, and a digest (distribution/reference, "Grammar").
_DIGEST = re.compile(
    r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+(:[\w.-]+)?"
    r"@sha256:[0-9a-f]{64}",
    re.ASCII,
)
PLACEHOLDER_HOST = "preview.invalid"
"""`.invalid` never resolves (RFC 2606), so a preview cannot pull or mount anything."""

CLUSTER_ANNOTATION = "megatron-eks/cluster"
"""On every Kubernetes object that is rendered, with the name in the cluster file."""

PREVIEW_ANNOTATION = "megatron-eks/preview"
"""On every Kubernetes object that holds a placeholder, with the value "true"."""

_LUSTRE_KEYS = ("LustreId", "LustreDnsName", "LustreMountName")


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
) -> Findings:
    """Yield which values are not what AWS calls such a thing, or lie in another account or region.

    `images` are the keys of the cluster's own images; without a home any place is right.
    """
    for key, value in values.items():
        form, allowed = _form(key, values, images, home)
        if re.fullmatch(form, value, re.ASCII) is None:
            shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}..."
            found, remedy = f"{shown!r} is not {allowed}", _REMEDY
            if key in images:
                remedy += "; an image of another registry belongs in `image` of a job file"
            yield Finding(Code.OUTPUTS_MALFORMED, (stack, key), found, remedy)


def _form(
    key: str, values: Mapping[str, str], images: Collection[str], home: Home | None
) -> tuple[str, str]:
    region, place = (re.escape(home.region), f" in {home.region}") if home else (_REGION, "")
    known = sorted(home.accounts) if home else []
    account = f"({'|'.join(known) or '[0-9]{12}'})"
    owner = f" of account {' or '.join(known)}" if known else ""
    if key in images:
        registry = rf"{account}\.dkr\.ecr\.{region}\.amazonaws\.com(\.cn)?"
        return registry + _IMAGE, f"an image in ECR{owner}{place}"
    if key.startswith("JobRoleArn"):
        return rf"arn:aws[a-z-]*:iam::{account}:role/[\w+=,.@/-]+", f"the ARN of a role{owner}"
    if key.startswith(_DNS_KEY):
        number = values.get(f"LustreId{key.removeprefix(_DNS_KEY)}", "")
        # FSx User Guide, "Mounting"; the second form stands in the API's own examples.
        name = rf"{re.escape(number)}\.fsx\.{region}\.(amazonaws\.com(\.cn)?|aws\.internal)"
        return name, f"the DNS name of {number or 'a file system'}{place}"
    forms = ((form, allowed) for name, form, allowed in _FORMS if re.fullmatch(name, key))
    return next(forms, _OTHER)


@dataclass(frozen=True)
class Lustre:
    """The file system as pods mount it."""

    id: str
    dns_name: str
    mount_name: str
    preview: bool


@dataclass(frozen=True)
class Efs:
    """The file system for code and homes, through the access point that acts as the pods' user."""

    id: str
    access_point: str
    preview: bool


@dataclass(frozen=True)
class Image:
    """An image a pod pulls; a preview until its digest is known."""

    uri: str
    preview: bool


@dataclass(frozen=True)
class Outputs:
    """Names that AWS chose, or placeholders where it was not asked yet."""

    file_systems: tuple[Lustre, ...]
    """In the order of the plan's."""
    efs: Efs
    images: Mapping[str, Image]
    job_role: str | None = None
    """ARN of the role of the jobs' pods."""
    bucket: str | None = None
    """The cluster's own, for data and large programs."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """ARNs of the roles of teams' pods, by their keys."""
    watch: Mapping[str, str] = field(default_factory=dict)
    """What the Observability stack says, by key; empty where there is none."""

    @property
    def lustre(self) -> Lustre:
        """The first file system."""
        return self.file_systems[0]


def read_outputs(
    document: Document | None,
    cluster: str,
    fallback: Mapping[str, str],
    *,
    suffixes: Sequence[str] = ("",),
    existing: ExistingLustre | None = None,
    home: Home | None = None,
) -> tuple[Outputs, list[Finding]]:
    """Return the outputs of a cluster; `fallback` holds `repository:tag` for each image.

    Without a file everything is a placeholder, which is what a first `make synth` renders.
    `suffixes` end the keys of each file system; one that exists needs no deployment to be known.
    Registries and host names must be those of `home`.
    """
    known = [_image_key(name) for name in fallback]
    values, findings = _values(document, cluster, known, home) if document else ({}, [])
    file_systems = tuple(_lustre(values, suffix) for suffix in suffixes)
    if existing is not None:
        own = (existing.id, existing.dns_name, existing.mount_name)
        file_systems = (Lustre(*own, preview=False),)
    efs_id, point = values.get("EfsId"), values.get("EfsAccessPointId")
    efs = Efs(efs_id or "fs-preview", point or "fsap-preview", preview=not (efs_id and point))
    images = {}
    for name, tagged in fallback.items():
        uri = values.get(_image_key(name)) or f"{PLACEHOLDER_HOST}/{tagged}"
        images[name] = Image(uri, preview=not is_digest(uri))
    role, bucket = (values.get(key) for key in ("JobRoleArn", "BucketName"))
    roles = {key: arn for key, arn in values.items() if key.startswith("JobRoleArn")}
    watch = {key: values[key] for key in ("AlarmTopicArn", "PrometheusUrl") if key in values}
    return Outputs(file_systems, efs, images, role, bucket, roles, watch), findings


def _values(
    document: Document, cluster: str, images: Collection[str], home: Home | None
) -> tuple[Mapping[str, str], list[Finding]]:
    """Return the outputs of all stacks together, and what is wrong with them."""
    findings = list(document.findings)
    stacks = document.value if isinstance(document.value, dict) else {}
    # The last one is no stack, and of no use any more: earlier releases wrote it.
    parts = ("Network", "Storage", "Images", "Cluster", "Observability", "Platform")
    foreign = [name for name in stacks if name not in {f"{cluster}-{part}" for part in parts}]
    if foreign:
        code, found = Code.OUTPUTS_OF_ANOTHER_CLUSTER, f"no stack of cluster {cluster!r}"
        findings.append(Finding(code, (foreign[0],), found, _REMEDY))
    values: dict[str, str] = {}
    home = home and home.settled(each for each in stacks.values() if isinstance(each, dict))
    for stack, outputs in stacks.items():
        if isinstance(outputs, dict) and all(isinstance(value, str) for value in outputs.values()):
            texts = {key: str(value) for key, value in outputs.items()}
            findings += check_values(stack, texts, images, home)
            values |= texts
        else:
            found = "not a mapping of texts"
            findings.append(Finding(Code.OUTPUTS_MALFORMED, (stack,), found, _REMEDY))
    return values, list(document.locate(findings))


def preview_warning(
    outputs: Outputs, used: Iterable[Image], file: str, deploy: str
) -> list[Finding]:
    """Say once what a preview lacks, and which command provides it."""
    if any(lustre.preview for lustre in outputs.file_systems):
        found = "no file system in the outputs of a deployment, so there are placeholders"
        return [warning(Code.PREVIEW, (), found, f"run: {deploy}").at(file, 1)]
    if any(image.preview for image in used):
        found = "images are known by tag only, so jobs stay previews"
        return [warning(Code.PREVIEW, (), found, "build them: meks build").at(file, 1)]
    return []


def _image_key(name: str) -> str:
    return f"{title(name)}Image"


def team_key(team: str | None) -> str:
    """Return what ends a team's ids and keys, which have letters and digits alone."""
    return (team or "").replace("-", "X")


def _lustre(values: Mapping[str, str], suffix: str) -> Lustre:
    file_system, dns_name, mount_name = (values.get(f"{key}{suffix}") for key in _LUSTRE_KEYS)
    if file_system and dns_name and mount_name:
        return Lustre(file_system, dns_name, mount_name, preview=False)
    # Each its own: two volumes of one handle would be one volume to the kubelet.
    name = f"fs-preview{suffix.lower()}"
    return Lustre(name, f"{name}.fsx.{PLACEHOLDER_HOST}", "preview", preview=True)


def is_digest(uri: str) -> bool:
    """Tell whether an image is named by its content."""
    return _DIGEST.fullmatch(uri) is not None
