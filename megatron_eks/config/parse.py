"""From a document to a model, or to every reason why it is none."""

import json
import re
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from megatron_eks.catalog.tables import entries
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import TOKEN, Finding, Findings, Path, choices
from megatron_eks.config.forms import TABLE
from megatron_eks.config.hints import of_value
from megatron_eks.config.job import JOB_KINDS, AnyJob, TorchRun
from megatron_eks.config.load import Document, Json
from megatron_eks.config.problems import finding_of, only_invalid_items
from megatron_eks.config.scalars import odd_part

RENDERED: Mapping[type[BaseModel], tuple[str, str, tuple[str, ...]]] = {
    ClusterConfig: ("cluster file", "observability.metrics", ("amp", "own")),
    TorchRun: ("job file, fsdp or ddp", "training.precision", ("bf16",)),
}
"""Keys of which not every value is rendered yet: what the reference page calls their file, their
path, and the values that are rendered today."""

M = TypeVar("M", bound=BaseModel)

# As `choices` begins.
_MEANT = re.compile(r"did you mean '([^']+)'\?")

_FOREIGN = dict(entries(TABLE["foreign"]))
_OF_SERVICES = {service: said.split(" | ") for service, said in entries(TABLE["tokens"])}

# Texts of the user's own, which need not be paths; folders among the variables are judged by name.
_FREE = frozenset({"args", "build_args", "command", "env", "labels", "tags"})
_LONGEST = 57


def parse_cluster(document: Document) -> tuple[ClusterConfig | None, list[Finding]]:
    """Return the cluster configuration, or None with the reasons."""
    config, findings = parse(document, ClusterConfig)
    return config, [*findings, *document.locate(check_rendered(config))]


def check_rendered(model: BaseModel | None) -> Findings:
    """Refuse what the file formats know and nothing renders yet."""
    for kind, (_, key, rendered) in RENDERED.items():
        if isinstance(model, kind) and (value := attrgetter(key)(model)) not in rendered:
            found, remedy = f"{value} is not supported yet", f"use {' or '.join(rendered)} for now"
            yield Finding(Code.NOT_SUPPORTED_YET, tuple(key.split(".")), found, remedy)


def parse_job(document: Document) -> tuple[AnyJob | None, list[Finding]]:
    """Return the job configuration, or None with the reasons."""
    if not isinstance(document.value, dict):
        return None, document.findings
    kind = document.value.get("kind")
    if isinstance(kind, str) and kind in JOB_KINDS:
        return parse(document, JOB_KINDS[kind])
    if foreign := _another_file(document.value, is_job=True):
        unknown = foreign
    elif kind is None:
        found, remedy, code = "'kind' is missing", ", ".join(sorted(JOB_KINDS)), Code.MISSING_KEY
        unknown = Finding(code, ("kind",), found, f"add one of: {remedy}")
    else:
        remedy = of_value("kind", kind) or choices(str(kind), JOB_KINDS)
        unknown = Finding(Code.NOT_ALLOWED, ("kind",), f"unknown kind {kind!r}", remedy)
    return None, [*document.findings, *document.locate([unknown])]


def parse(document: Document, model: type[M]) -> tuple[M | None, list[Finding]]:
    """Return a document as a model of the file, or None with the reasons."""
    findings = list(document.findings)
    if not isinstance(document.value, dict):
        return None, findings
    if foreign := _another_file(document.value, is_job=model is not ClusterConfig):
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
        details = (e for e in error.errors(include_url=False) if not only_invalid_items(e))
        translated = [finding_of(each, document, model) for each in details]
        # Beside another form, which comes later, the keys of the known one are not missing.
        later = {each.path[:-1] for each in translated if each.code is Code.NOT_SUPPORTED_YET}
        # Nor is the key that an unknown one stands for.
        unknown = (each for each in translated if each.code is Code.UNKNOWN_KEY)
        meant = ((each.path, _MEANT.match(each.remedy)) for each in unknown)
        without = {(*path[:-1], word[1]) for path, word in meant if word} | later - {()}
        told = [
            each
            for each in translated
            if each.path not in places
            and (each.code is not Code.MISSING_KEY or not {each.path, each.path[:-1]} & without)
        ]
        # Each kind that a value may have refuses it for the same reason.
        return None, [*findings, *document.locate(dict.fromkeys(told))]
    return parsed, findings


def _another_file(value: Mapping[str, Json], *, is_job: bool) -> Finding | None:
    """Name a file that another program reads, or that is the other one here, as a whole."""
    for key, program in _FOREIGN.items():
        if key in value:
            found = f"{key!r} is a key of {program}, and of no file of this project"
            remedy = "write the keys of docs/configuration.md; `meks check` reads the other file"
            return Finding(Code.UNKNOWN_KEY, (key,), found, remedy)
    if is_job and "kind" not in value and {"gpu_pools", "access"} <= value.keys():
        remedy = "move it out of jobs/, and name it by CLUSTER_CONFIG or --cluster"
        return Finding(Code.MISSING_KEY, ("kind",), "a cluster file: it has no kind", remedy)
    return None


def _nodes(value: Json, path: Path = ()) -> Iterator[tuple[Path, Json]]:
    yield path, value
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in pairs:
            yield from _nodes(inner, (*path, key))


def tokens(value: Json) -> Findings:
    """Yield where a token itself stands, instead of the name of the Secret that holds it."""
    for path, each in _nodes(value):
        key = str(path[-1]) if path else ""
        if token := TOKEN.search(key) or (isinstance(each, str) and TOKEN.search(each)):
            whose, remedy = _OF_SERVICES[str(token.lastgroup)]
            found = f"{whose} stands in this file: {token[str(token.lastgroup)]}…"
            yield Finding(Code.TOKEN_IN_FILE, path, found, remedy)


def odd_paths(value: Json) -> Findings:
    """Yield texts with a part that no path needs: '..', '.', nothing, or an unseen character."""
    for path, each in _nodes(value):
        if isinstance(each, str) and _FREE.isdisjoint(path) and (odd := odd_part(each)):
            shown = ascii(each if len(each) <= _LONGEST else f"{each[:_LONGEST]}...")
            yield Finding(Code.BAD_FORMAT, path, f"{shown} has {odd[0]}", odd[1])
