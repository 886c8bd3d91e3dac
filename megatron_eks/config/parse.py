"""From a document to a model, or to every reason why it is none."""

import json
import re
from collections.abc import Callable, Iterator
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from megatron_eks.config import aliases
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, choices
from megatron_eks.config.job import JOB_KINDS, AnyJob
from megatron_eks.config.load import Document
from megatron_eks.config.prediction import PredictionFile
from megatron_eks.config.problems import finding_of, only_invalid_items
from megatron_eks.config.unsupported import cluster_unsupported, job_unsupported
from megatron_eks.config.whole_file import Kind, another_file, tokens

M = TypeVar("M", bound=BaseModel)

# As `choices` begins.
_MEANT = re.compile(r"did you mean '([^']+)'\?")


def parse_cluster(document: Document) -> tuple[ClusterConfig | None, list[Finding]]:
    """Return the cluster configuration, or None with the reasons."""
    return _parse(document, ClusterConfig, cluster_unsupported)


def parse_job(document: Document) -> tuple[AnyJob | None, list[Finding]]:
    """Return the job configuration, or None with the reasons."""
    if not isinstance(document.value, dict):
        return None, document.findings
    kind = document.value.get("kind")
    if foreign := another_file(document.value, "job"):
        return None, [*document.findings, *document.locate([foreign])]
    if isinstance(kind, str) and kind in JOB_KINDS:
        return _parse(document, JOB_KINDS[kind], job_unsupported)
    if kind is None:
        found, remedy, code = "'kind' is missing", ", ".join(sorted(JOB_KINDS)), Code.MISSING_KEY
        unknown = Finding(code, ("kind",), found, f"add one of: {remedy}")
    else:
        remedy = aliases.of_value("kind", kind) or choices(str(kind), JOB_KINDS)
        unknown = Finding(Code.NOT_ALLOWED, ("kind",), f"unknown kind {kind!r}", remedy)
    return None, [*document.findings, *document.locate([unknown])]


def parse_prediction(document: Document) -> tuple[PredictionFile | None, list[Finding]]:
    """Return what `meks predict` is asked, or None with the reasons."""
    return _parse(document, PredictionFile, lambda _: iter(()))


def _parse(
    document: Document, model: type[M], refused: Callable[[M], Iterator[Finding]]
) -> tuple[M | None, list[Finding]]:
    findings = list(document.findings)
    if not isinstance(document.value, dict):
        return None, findings
    whole: Kind = "cluster" if model is ClusterConfig else "job"
    if foreign := another_file(document.value, whole):
        return None, [*findings, *document.locate([foreign])]
    found_tokens = list(tokens(document.value))
    # What YAML could not read is no wrong value as well.
    unread = {each.path for each in findings if each.code is Code.YAML_SYNTAX}
    findings += document.locate(found_tokens)
    places = unread | {finding.path for finding in found_tokens}
    try:
        # JSON mode: a list may become a tuple and a string a date, and nothing else is coerced.
        parsed = model.model_validate_json(json.dumps(document.value))
    except ValidationError as error:
        translated = [
            finding_of(detail, document, model)
            for detail in error.errors(include_url=False)
            if not only_invalid_items(detail)
        ]
        meant = {path for each in translated for path in _meant_by(each)}
        # Beside another form, which comes later, the keys of the known one are not missing.
        later = {each.path[:-1] for each in translated if each.code is Code.NOT_SUPPORTED_YET}
        others = (
            finding
            for finding in translated
            if finding.path not in places
            and not (
                finding.code is Code.MISSING_KEY
                and (finding.path in meant or finding.path[:-1] in later - {()})
            )
        )
        # Each kind that a value may have refuses it for the same reason.
        return None, [*findings, *document.locate(dict.fromkeys(others))]
    return parsed, [*findings, *document.locate(refused(parsed))]


def _meant_by(found: Finding) -> Iterator[Path]:
    """Yield the key that an unknown one stands for; it is not missing as well."""
    if found.code is Code.UNKNOWN_KEY and (meant := _MEANT.match(found.remedy)):
        yield (*found.path[:-1], meant[1])
