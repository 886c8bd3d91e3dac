"""What a resource of a template or a Kubernetes object says that it allows."""

from collections.abc import Iterator

from megatron_eks.config.allowances import Allowance, PlaceT
from megatron_eks.config.errors import Path
from megatron_eks.config.load import Json
from megatron_eks.rules.values import mapping, text

ANNOTATION = "megatron-eks/allow"


def in_metadata(place: PlaceT, body: Json, file: str, path: Path) -> Iterator[Allowance[PlaceT]]:
    """Return what a resource of a template allows: `Metadata: {meks: {allow: {CODE: REASON}}}`."""
    metadata = mapping((mapping(body) or {}).get("Metadata")) or {}
    allowed = mapping((mapping(metadata.get("meks")) or {}).get("allow")) or {}
    for code, reason in allowed.items():
        where = (*path, "Metadata", "meks", "allow", code)
        yield Allowance(place, code, text(reason) or "", file, 0, where)


def in_annotation(place: PlaceT, body: Json, file: str, title: str) -> Iterator[Allowance[PlaceT]]:
    """Return what a Kubernetes object allows: the annotation, entries separated by semicolons."""
    metadata = mapping((mapping(body) or {}).get("metadata")) or {}
    written = text((mapping(metadata.get("annotations")) or {}).get(ANNOTATION))
    for entry in written.split(";") if written else ():
        code, _, reason = entry.strip().partition(" ")
        path = (title, "metadata", "annotations", ANNOTATION)
        yield Allowance(place, code, reason.strip(), file, 0, path)
