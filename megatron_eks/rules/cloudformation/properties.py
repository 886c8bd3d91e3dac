"""Rules over any resource: its keys and the kinds of its values, and what it refers to."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path, choices
from megatron_eks.config.load import Json
from megatron_eks.rules.shapes import CLOUDFORMATION, Misfit, Shape, is_reference, misfits, table
from megatron_eks.rules.template_set import OF_STACK, Resource, TemplateSet
from megatron_eks.rules.values import is_absent, is_intrinsic, is_placeholder, shown, written

_CLOSE = 0.75
NEARLY = 0.95
"""How alike a name and the one that was meant are at least."""
# CloudFormation User Guide, "Resource attribute reference"; it takes Description too, of which the
# guide says nothing (aws-cdk pull request 10522, and templates of CodeStar).
_ATTRIBUTES = (
    *("Condition", "CreationPolicy", "DeletionPolicy", "DependsOn", "Description", "Metadata"),
    *("Properties", "Type", "UpdatePolicy", "UpdateReplacePolicy"),
)
# SAM Developer Guide, "Embedded connectors": AWS SAM takes these at any resource.
_SAM, _OF_SAM = "AWS::Serverless", ("Connectors", "IgnoreGlobals")
_POLICIES = {
    "DeletionPolicy": ("Delete", "Retain", "RetainExceptOnCreate", "Snapshot"),
    "UpdateReplacePolicy": ("Delete", "Retain", "Snapshot"),
}
# CloudFormation User Guide, "Template sections"; Globals and Hooks come with a macro.
_SECTIONS: Shape = {
    **dict.fromkeys(("Conditions", "Globals", "Hooks", "Mappings", "Metadata", "Rules"), "any"),
    **dict.fromkeys(("Resources!", "Transform"), "any"),
    "AWSTemplateFormatVersion": {"=": ["2010-09-09"]},
    "Description": "text",
    "Outputs": {
        "*": {
            "Condition": "text",
            "Description": "text",
            "Value!": "any",
            "Export": {"Name!": "any"},
        }
    },
    "Parameters": {
        "*": {
            **dict.fromkeys(("AllowedPattern", "ConstraintDescription", "Description"), "text"),
            **dict.fromkeys(("MaxLength", "MaxValue", "MinLength", "MinValue"), "number"),
            "AllowedValues": ["any"],
            "Default": "any",
            "NoEcho": "truth",
            "Type!": "text",
        }
    },
}
# CloudFormation User Guide, "Pseudo parameters reference".
_PSEUDO = frozenset(
    f"AWS::{name}"
    for name in (
        *("AccountId", "NoValue", "NotificationARNs", "Partition", "Region", "StackId"),
        *("StackName", "URLSuffix"),
    )
)
_PROGRAMS = frozenset({"Args", "Command", "EntryPoint", "Metadata"})
_ADD = "add it, or import it"
_SUB = re.compile(r"\$\{([^!$}][^}]*)\}")


def shapes(templates: TemplateSet) -> Iterator[Finding]:
    """Require the properties that AWS's registry of resource types describes.

    CloudFormation User Guide, "Template reference"; CloudFormation refuses the stack, or rolls it
    back after minutes.
    """
    known = table(CLOUDFORMATION)
    for resource in templates.without_type():
        found, remedy = "a resource without Type", "say what it is: Type: AWS::..."
        yield resource.find(Code.PROPERTY, ("Type",), found, remedy)
    for file, template in templates.files():
        for misfit in misfits(template, _SECTIONS, known, loose=True):
            yield _of_a_section(file, misfit)
    for resource in templates.everything():
        shape = known.get(resource.type)
        if shape is None or templates.has_macro(resource.file):
            # A macro may take any key and value.
            yield from _type(resource, known) if shape is None else ()
            continue
        of_sam = templates.has_transform(resource.file, _SAM)
        yield from _attributes(resource, _OF_SAM if of_sam else ())
        names = templates.names(resource.file)
        for misfit in misfits(dict(resource.properties), shape, known, loose=True):
            if is_reference(misfit.value) and not misfit.known:
                if _is_single(misfit.value, resource.file, templates):
                    yield _single(resource, misfit)
            # Something else may complete a fragment.
            elif not misfit.missing or (names is not None and names.whole):
                yield _finding(resource, misfit)


def _is_single(value: Json, file: str, templates: TemplateSet) -> bool:
    """Tell a reference that is one value: to a resource, or to a parameter that is no list."""
    if templates.target(value, file) is not None:
        return True
    name = value.get("Ref") if isinstance(value, dict) else None
    parameter = (templates.part(file, "Parameters") or {}).get(str(name))
    kind = parameter.get("Type") if isinstance(parameter, dict) else None
    return isinstance(kind, str) and "List" not in kind and not is_placeholder(kind)


def _single(resource: Resource, misfit: Misfit) -> Finding:
    name = misfit.value.get("Ref") if isinstance(misfit.value, dict) else None
    found = f"Ref {name} is one value, and {resource.type} takes a list here"
    remedy = f"write [Ref {name}], in YAML [!Ref {name}]"
    return resource.find(Code.PROPERTY, misfit.path, found, remedy)


def _of_a_section(file: str, misfit: Misfit) -> Finding:
    found, remedy = _told(misfit, "CloudFormation", "knows")
    return Finding(Code.PROPERTY, misfit.path, found, remedy, file=file)


def _type(resource: Resource, known: "Mapping[str, object]") -> Iterator[Finding]:
    types = [name for name in known if not name.startswith("@")]
    same = [name for name in types if name.lower() == resource.type.lower()]
    close = same or get_close_matches(resource.type, types, 1, NEARLY)
    if close:
        found = f"{shown(resource.type)} is no resource type"
        yield resource.find(Code.PROPERTY, ("Type",), found, f"did you mean {close[0]}?")


def _attributes(resource: Resource, known: Sequence[str]) -> Iterator[Finding]:
    after = resource.body.get("DependsOn")
    listed = after if isinstance(after, list) else [after]
    if not is_absent(after) and not all(isinstance(each, str) for each in listed):
        found, remedy = "DependsOn of something else than names", "write the names of resources"
        yield resource.find(Code.PROPERTY, ("DependsOn",), found, remedy)
    for key in resource.body:
        if key not in (*_ATTRIBUTES, *known) and not key.startswith("Fn::"):
            close = get_close_matches(key, _ATTRIBUTES, 1, _CLOSE)
            remedy = f"did you mean {close[0]}?" if close else "put it under Properties"
            found = f"a resource has no attribute {shown(key)}"
            yield resource.find(Code.PROPERTY, (key,), found, remedy)
    for key, allowed in _POLICIES.items():
        policy = resource.body.get(key)
        if not is_absent(policy) and not is_intrinsic(policy) and policy not in allowed:
            found = f"unknown policy {shown(policy)}"
            yield resource.find(Code.PROPERTY, (key,), found, f"use {' or '.join(allowed)}")


def _finding(resource: Resource, misfit: Misfit) -> Finding:
    found, remedy = _told(misfit, resource.type, "has")
    return resource.find(Code.PROPERTY, misfit.path, found, remedy)


def _told(misfit: Misfit, who: str, knows: str) -> tuple[str, str]:
    """Return what is wrong for whom, and its remedy."""
    key = str(misfit.path[-1]) if misfit.path else ""
    if misfit.missing:
        return f"{who} needs {key} here", f"add {key}"
    if misfit.known:
        close = get_close_matches(key, misfit.known, 1, _CLOSE)
        remedy = f"did you mean {close[0]}?" if close else f"known: {', '.join(misfit.known)}"
        return f"{who} {knows} no {shown(key)} here", remedy
    if misfit.choices and isinstance(misfit.value, str):
        service = who.removeprefix("AWS::").partition("::")[0]
        return f"{shown(misfit.value)} is unknown to {service}", choices(
            misfit.value, misfit.choices
        )
    return f"{shown(misfit.value)} is not what {who} takes here", f"write {misfit.expected}"


def references(templates: TemplateSet) -> Iterator[Finding]:
    """Require of every reference that its template has the resource or parameter.

    CloudFormation User Guide, "Ref", "Fn::GetAtt", "Fn::Sub", "DependsOn attribute": the stack is
    refused otherwise ("Unresolved resource dependencies"). Something else may complete a template
    without a parameter; what is nearly there is misspelt all the same.
    """
    for resource in templates.everything():
        names = (*named(dict(resource.body), ()), *after(resource))
        for path, found, remedy in _unresolved(templates, resource.file, names):
            name = _of_a_script(resource, path, found) if remedy == _ADD else None
            said = f"write ${{!{name}}} for a variable of the script, or add a parameter"
            yield resource.find(Code.REFERENCE, path, found, said if name else remedy)
    for file, outputs in templates.outputs():
        for path, found, remedy in _unresolved(templates, file, named(outputs, ("Outputs",))):
            yield Finding(Code.REFERENCE, path, found, remedy, file=file)


def _of_a_script(resource: Resource, path: Path, found: str) -> str | None:
    """Return a name that a shell script in Fn::Sub has between ${ and }, as its own variables."""
    value: Json = dict(resource.properties)
    for step in path:
        if isinstance(value, dict):
            value = value.get(str(step))
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
    inner = value.get("Fn::Sub") if isinstance(value, dict) else None
    said = inner[0] if isinstance(inner, list) and inner else inner
    if not isinstance(said, str) or not ("#!/" in said or "UserData" in path):
        return None
    return next(
        (each[1] for each in _SUB.finditer(said) if f"parameter {shown(each[1])} " in found), None
    )


def _unresolved(
    templates: TemplateSet, file: str, given: "Iterable[tuple[Path, str]]"
) -> Iterator[tuple[Path, str, str]]:
    names = templates.names(file)
    modules = templates.modules(file)
    for path, name in given if names is not None else ():
        if names is None or name in names.known or name in _PSEUDO or _in_module(name, modules):
            continue
        close = get_close_matches(name, [*names.known, *_PSEUDO], 1, _CLOSE)
        if close or names.whole:
            found = f"no resource and no parameter {shown(name)} in this template"
            remedy = f"did you mean {close[0]}?" if close else _ADD
            yield path, found, remedy


def _in_module(name: str, modules: "Iterable[str]") -> bool:
    """Tell whether a resource of a module is meant, named by the module's name and its own."""
    return any(name.startswith((each, f"{each}.")) and name != each for each in modules)


def imports(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse an import of a name that a template beside it nearly exports.

    CloudFormation User Guide, "Fn::ImportValue": the stack waits for nothing, and is refused.
    """
    plain, of_stacks = templates.exported(), templates.exported_by_stacks()
    for resource in templates.everything():
        for path, said in imported(dict(resource.properties), ()):
            match = OF_STACK.fullmatch(said)
            name, known = (match["rest"], of_stacks) if match else (said, plain)
            close = get_close_matches(name, known, 1, NEARLY) if name not in known else []
            if close:
                found = f"nothing here exports {shown(name)}"
                yield resource.find(Code.REFERENCE, path, found, f"did you mean {close[0]}?")


def imported(value: Json, path: Path) -> Iterator[tuple[Path, str]]:
    """Return the names of exports that a value imports, each with its place."""
    children = enumerate(value) if isinstance(value, list) else ()
    for key, each in value.items() if isinstance(value, dict) else children:
        if key == "Fn::ImportValue" and (name := written(each)) is not None:
            yield path, name
        else:
            yield from imported(each, (*path, key))


def after(resource: Resource) -> Iterator[tuple[Path, str]]:
    """Return the names after which a resource is made."""
    value = resource.body.get("DependsOn")
    for name in value if isinstance(value, list) else [value]:
        if isinstance(name, str):
            yield ("DependsOn",), name


def named(value: Json, path: Path) -> Iterator[tuple[Path, str]]:
    """Return the names that a value refers to, each with its place below the properties."""
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from named(each, (*path, index))
    if not isinstance(value, dict):
        return
    if len(value) == 1:
        yield from _of_intrinsic(value, path)
    for key, each in value.items():
        if key not in {"Metadata", "Fn::Transform"} and not key.startswith("Fn::ForEach"):
            below = () if not path and key == "Properties" else (*path, key)
            yield from named(each, below)


def _of_intrinsic(value: Mapping[str, Json], path: Path) -> Iterator[tuple[Path, str]]:
    ((key, inner),) = value.items()
    if key == "Ref" and isinstance(inner, str):
        yield path, inner
    elif key == "Fn::GetAtt":
        first = inner[0] if isinstance(inner, list) and inner else inner
        if isinstance(first, str):
            yield path, first.partition(".")[0]
    elif key == "Fn::Sub":
        own: Json = inner[1] if isinstance(inner, list) and len(inner) > 1 else {}
        written = inner[0] if isinstance(inner, list) and inner else inner
        for match in _SUB.finditer(written) if isinstance(written, str) else ():
            name = match[1].strip().partition(".")[0]
            if not (isinstance(own, dict) and name in own):
                yield path, name


def twice(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of the same element twice in a list.

    CloudFormation's schemas demand different elements of most lists, and the services refuse the
    others or take one of the two: subnets, groups, ranges, policies, tags.
    """
    for resource in templates.everything():
        for path, value in _lists(dict(resource.body), ()):
            seen: list[Json] = []
            for index, each in enumerate(value):
                if each in seen:
                    found, remedy = "the same as an element before it", "remove it"
                    place = (*path, index)
                    yield resource.find(Code.PROPERTY, place, found, remedy, Level.WARNING)
                seen.append(each)


def _lists(value: Json, path: Path) -> Iterator[tuple[Path, list[Json]]]:
    if isinstance(value, list):
        yield path, value
    children = enumerate(value) if isinstance(value, list) else ()
    for key, each in value.items() if isinstance(value, dict) else children:
        # The arguments of a function, and what programs are given, may well be alike.
        if key not in _PROGRAMS and not str(key).startswith("Fn::"):
            yield from _lists(each, () if not path and key == "Properties" else (*path, key))
