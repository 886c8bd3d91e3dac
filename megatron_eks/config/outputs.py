"""What AWS chose: the file that `meks deploy` and `cdk deploy --outputs-file` write."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from megatron_eks.config.cluster import ExistingLustre
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, warning
from megatron_eks.config.load import Document
from megatron_eks.config.output_values import Home, check_values

# A registry, a repository, and a digest (distribution/reference, "Grammar").
_DIGEST = re.compile(
    r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+(:[\w.-]+)?"
    r"@sha256:[0-9a-f]{64}",
    re.ASCII,
)

PLACEHOLDER_HOST = "preview.invalid"
"""`.invalid` never resolves (RFC 2606), so a preview cannot pull or mount anything."""

PLATFORM = "Platform"
"""No stack: where `meks outputs` records the digests of the platform's images."""

PREVIEW_ANNOTATION = "megatron-eks/preview"
"""On every Kubernetes object that holds a placeholder, with the value "true"."""


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
    digests: Mapping[str, str]
    """Images of others, `REPOSITORY:TAG`, and the same with the digest that was resolved."""
    job_role: str | None = None
    """ARN of the role of the jobs' pods."""

    @property
    def lustre(self) -> Lustre:
        """The first file system."""
        return self.file_systems[0]


_ANEW = "remove the file, then write it anew: meks outputs"

_IMAGE_KEYS = {"megatron": "MegatronImage", "fsdp": "FsdpImage"}
_LUSTRE_KEYS = ("LustreId", "LustreDnsName", "LustreMountName")
_EFS_KEYS = ("EfsId", "EfsAccessPointId")


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
    if document is None:
        return _outputs({}, fallback, suffixes, existing), []
    findings = list(document.findings)
    stacks = document.value if isinstance(document.value, dict) else {}
    parts = ("Network", "Storage", "Images", "Cluster", "Observability", PLATFORM)
    foreign = [name for name in stacks if name not in {f"{cluster}-{part}" for part in parts}]
    if foreign:
        findings.append(
            Finding(
                Code.OUTPUTS_OF_ANOTHER_CLUSTER,
                (foreign[0],),
                f"this stack is not one of cluster {cluster!r}",
                _ANEW,
            )
        )
    values: dict[str, str] = {}
    home = home and home.settled(each for each in stacks.values() if isinstance(each, dict))
    for stack, outputs in stacks.items():
        if isinstance(outputs, dict) and all(isinstance(value, str) for value in outputs.values()):
            texts = {key: str(value) for key, value in outputs.items()}
            findings += check_values(stack, texts, _IMAGE_KEYS.values(), home)
            values |= texts
        else:
            found = "not a mapping of texts"
            findings.append(Finding(Code.OUTPUTS_MALFORMED, (stack,), found, _ANEW))
    return _outputs(values, fallback, suffixes, existing), list(document.locate(findings))


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


def tag_warning(outputs: Outputs, tagged: Iterable[str], file: str) -> list[Finding]:
    """Say once which images of the platform no digest is recorded of; a tag may be moved."""
    loose = [uri for uri in tagged if uri not in outputs.digests]
    if not loose:
        return []
    found = f"images of the platform are known by tag only: {', '.join(loose)}"
    remedy = "run where their registries are reached: meks outputs"
    return [warning(Code.UNPINNED_IMAGE, (), found, remedy).at(file, 1)]


def _outputs(
    values: Mapping[str, str],
    fallback: Mapping[str, str],
    suffixes: Sequence[str],
    existing: ExistingLustre | None,
) -> Outputs:
    if existing is not None:
        file_systems: tuple[Lustre, ...] = (
            Lustre(existing.id, existing.dns_name, existing.mount_name, preview=False),
        )
    else:
        file_systems = tuple(_lustre(values, suffix) for suffix in suffixes)
    efs_id, access_point = (values.get(key, "") for key in _EFS_KEYS)
    efs = (
        Efs(efs_id, access_point, preview=False)
        if efs_id and access_point
        else Efs("fs-preview", "fsap-preview", preview=True)
    )
    images = {}
    for name, key in _IMAGE_KEYS.items():
        uri = values.get(key) or f"{PLACEHOLDER_HOST}/{fallback[name]}"
        images[name] = Image(uri, preview=not _DIGEST.fullmatch(uri))
    digests = {uri.partition("@")[0]: uri for uri in values.values() if _DIGEST.fullmatch(uri)}
    return Outputs(file_systems, efs, images, digests, values.get("JobRoleArn"))


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
