"""Rule over texts in which CloudFormation replaces nothing, though they are written for it."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.values import shown

_NAMED = re.compile(r"\$\{(?P<name>AWS::[A-Za-z]+|[A-Za-z0-9]+)(\.[A-Za-z0-9.]+)?\}")
# Programs and engines of their own read these.
_FREE = frozenset({"BuildSpec", "Description", "Metadata", "UserData", "ZipFile"})


def texts(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse a text with `${NAME}` of this template that no Fn::Sub reads, and such a key.

    CloudFormation User Guide, "Fn::Sub": elsewhere the text stays as it is; functions stand for
    values, so that of a condition's key nothing is replaced.
    """
    for resource in templates.everything():
        names = templates.names(resource.file)
        known = names.known if names is not None else frozenset()
        for path, value in _plain(dict(resource.properties), ()):
            match = next(
                (
                    each
                    for each in _NAMED.finditer(value)
                    if each["name"].startswith("AWS::") or each["name"] in known
                ),
                None,
            )
            if match is not None:
                found = f"{shown(match[0])} stays as it is in a text without Fn::Sub"
                yield resource.find(Code.FUNCTION, path, found, "write it with Fn::Sub")
        for path, key in _keys(dict(resource.properties), ()):
            found = f"{shown(key)} as a key, in which CloudFormation replaces nothing"
            remedy = "write the name out, or the whole document as one Fn::Sub text of JSON"
            yield resource.find(Code.FUNCTION, path, found, remedy)


def _plain(value: Json, path: Path) -> Iterator[tuple[Path, str]]:
    """Return the texts that CloudFormation hands on as they are."""
    if isinstance(value, str) and "${" in value and "\n" not in value:
        yield path, value
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _plain(each, (*path, index))
    elif isinstance(value, dict):
        for key, each in value.items():
            if key not in _FREE and key != "Fn::Sub":
                yield from _plain(each, (*path, key))


def _keys(value: Json, path: Path) -> Iterator[tuple[Path, str]]:
    """Return the keys of conditions with `${NAME}`; a loop replaces it in other keys."""
    for key, each in value.items() if isinstance(value, dict) else ():
        if key.startswith("Fn::"):
            continue
        if "Condition" in path and _NAMED.search(key):
            yield (*path, key), key
        yield from _keys(each, (*path, key))
    for index, each in enumerate(value) if isinstance(value, list) else ():
        yield from _keys(each, (*path, index))
