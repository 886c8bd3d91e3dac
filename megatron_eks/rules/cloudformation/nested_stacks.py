"""Rules over nested stacks: what a template passes to the one that it names, and takes from it."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import PurePosixPath

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, is_intrinsic, items, mapping, shown, text

_STACK = "AWS::CloudFormation::Stack"
_URL = "TemplateURL"
_CLOSE = 0.75
_OUTPUT = re.compile(r"\$\{([A-Za-z0-9]+)\.Outputs\.([A-Za-z0-9]+)\}")
_SUFFIXES = (".json", ".template", ".yaml", ".yml")


def stacks(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a nested stack its template, and the parameters that this one takes.

    CloudFormation User Guide, "AWS::CloudFormation::Stack" and "aws cloudformation package", which
    uploads the local files that TemplateURL names: parameters that are missing or unknown end the
    stack ("Parameters: [...] must have values", "do not exist in the template").
    """
    known = dict(templates.files())
    for stack in templates.resources(_STACK):
        if is_absent(stack.properties.get(_URL)):
            same = next((key for key in stack.properties if key.lower() == _URL.lower()), None)
            found = f"no {_URL}" + (
                f", and {shown(same)} is none of its properties" if same else ""
            )
            yield stack.find(Code.PROPERTY, (_URL,), found, f"write {_URL}")
            continue
        given = mapping(stack.properties.get("Parameters"))
        for name, value in (given or {}).items():
            if isinstance(value, list):
                found = f"a list as the parameter {name}, and stacks take texts: it is refused"
                remedy = 'write Fn::Join [",", [...]]'
                yield stack.find(Code.PROPERTY, ("Parameters", name), found, remedy)
        yield from _absent(stack, known)
        nested = _nested(stack, known)
        takes = templates.part(nested, "Parameters") if nested is not None else None
        if given is not None and nested is not None and takes is not None:
            yield from _parameters(stack, given, nested, takes)


def outputs(templates: TemplateSet) -> Iterator[Finding]:
    """Require of what is taken from a nested stack that its template has such an output.

    CloudFormation User Guide, "AWS::CloudFormation::Stack", return values: Outputs.NAME.
    """
    known = dict(templates.files())
    has = {
        (stack.file, stack.id): [*(mapping(known[nested].get("Outputs")) or {})]
        for stack in templates.resources(_STACK)
        if (nested := _nested(stack, known)) is not None
        and not any(key.startswith("Fn::") for key in mapping(known[nested].get("Outputs")) or {})
        and "Transform" not in known[nested]
    }
    for resource in templates.everything():
        for path, stack, name in _taken(dict(resource.properties), ()):
            wrong = _unknown(stack, name, has.get((resource.file, stack)))
            if wrong is not None:
                yield resource.find(Code.REFERENCE, path, *wrong)
    for file, listed in templates.outputs():
        for path, stack, name in _taken(listed, ("Outputs",)):
            wrong = _unknown(stack, name, has.get((file, stack)))
            if wrong is not None:
                yield Finding(Code.REFERENCE, path, *wrong, file=file)


def _unknown(stack: str, name: str, known: list[str] | None) -> tuple[str, str] | None:
    if known is None or name in known:
        return None
    close = get_close_matches(name, known, 1, _CLOSE)
    remedy = f"did you mean {close[0]}?" if close else f"known: {', '.join(known) or 'none'}"
    return f"the template of {stack} has no output {shown(name)}", remedy


def _local(stack: Resource) -> str | None:
    """Return the local file that a stack names; None for an address, and what nobody knows."""
    url = text(stack.properties.get(_URL)) or ""
    local = url.endswith(_SUFFIXES) and "://" not in url and "$" not in url
    return str(PurePosixPath(stack.file).parent / url) if local else None


def _nested(stack: Resource, known: "dict[str, dict[str, Json]]") -> str | None:
    file = _local(stack)
    return file if file in known else None


def _absent(stack: Resource, known: "dict[str, dict[str, Json]]") -> Iterator[Finding]:
    """Find a file that is not beside its template, where one has nearly its name."""
    file = _local(stack)
    if file is None or file in known:
        return
    folder = PurePosixPath(file).parent
    beside = [PurePosixPath(each) for each in known if PurePosixPath(each).parent == folder]
    names = [each.name for each in beside if str(each) != stack.file]
    close = get_close_matches(PurePosixPath(file).name, names, 1, _CLOSE)
    if close:
        found = f"no template {shown(PurePosixPath(file).name)} beside this one"
        yield stack.find(Code.REFERENCE, (_URL,), found, f"did you mean {close[0]}?")


def _parameters(
    stack: Resource, given: "dict[str, Json]", nested: str, takes: "dict[str, Json]"
) -> Iterator[Finding]:
    file = PurePosixPath(nested).name
    for name, value in given.items():
        path: Path = ("Parameters", name)
        if name not in takes:
            close = get_close_matches(name, takes, 1, _CLOSE)
            remedy = f"did you mean {close[0]}?" if close else "remove it, or add it there"
            found = f"{file} has no parameter {shown(name)}: the stack is refused"
            yield stack.find(Code.REFERENCE, path, found, remedy)
            continue
        allowed = items((mapping(takes[name]) or {}).get("AllowedValues")) or []
        plain = not is_intrinsic(value) and isinstance(value, str | int | float)
        if allowed and plain and str(value) not in {str(each) for each in allowed}:
            found = f"{shown(value)}, and {file} allows none such: the stack is refused"
            yield stack.find(
                Code.REFERENCE, path, found, f"write one of {', '.join(map(str, allowed))}"
            )
    missing = [
        name
        for name, body in takes.items()
        if name not in given and isinstance(body, dict) and "Default" not in body
    ]
    if missing:
        found = f"{file} needs {', '.join(missing)}, without a default: the stack is refused"
        yield stack.find(Code.REFERENCE, ("Parameters",), found, f"add {', '.join(missing)}")


def _taken(value: Json, path: Path) -> Iterator[tuple[Path, str, str]]:
    """Return what is taken from the outputs of stacks, each with its place."""
    children = enumerate(value) if isinstance(value, list) else ()
    for key, each in value.items() if isinstance(value, dict) else children:
        if key == "Fn::GetAtt":
            parts = each.split(".") if isinstance(each, str) else items(each) or []
            words = ".".join(part for part in parts if isinstance(part, str)).split(".")
            if len(words) == 3 and words[1] == "Outputs":  # noqa: PLR2004 -- STACK.Outputs.NAME
                yield path, words[0], words[2]
        elif key == "Fn::Sub":
            said = each[0] if isinstance(each, list) and each else each
            for match in _OUTPUT.finditer(said) if isinstance(said, str) else ():
                yield path, match[1], match[2]
            yield from _taken(each if isinstance(each, list) else [], (*path, key))
        else:
            yield from _taken(each, (*path, key))
