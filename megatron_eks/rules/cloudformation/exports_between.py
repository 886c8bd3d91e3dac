"""Rules over what templates of one folder import from each other."""

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import PurePath

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.cloudformation.properties import NEARLY, imported
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import written

_OF_CDK = "ExportsOutput"
_LIKE = 0.4
# So many prove the custom of a stack.
_SEVERAL = 3
_Import = tuple[Resource, Path, str]


def gone(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse an import that the exporting stack, which is at hand, does not export.

    CloudFormation User Guide, "Fn::ImportValue" ("No export named ... found"). The CDK names its
    exports STACK:ExportsOutput..., so that each name says of which stack it is.
    """
    known = templates.exported()
    stacks = {name.partition(":")[0] for name in known if ":" in name}
    for resource, path, name in _imports(templates):
        stack, colon, rest = name.partition(":")
        of_cdk = colon and rest.startswith(_OF_CDK) and stack in stacks
        # What is nearly exported is misspelt, and said so.
        if of_cdk and name not in known and not get_close_matches(name, known, 1, NEARLY):
            found = f"nothing here exports {rest!r} of {stack}, whose other exports are here"
            remedy = f"export it there, as {name}, or import what is exported"
            yield resource.find(Code.REFERENCE, path, found, remedy)
        elif not of_cdk and _is_foreign(name, known, templates):
            # Another stack may export it all the same: the prefix is a custom.
            found = f"nothing here exports {rest!r} of {stack}, whose other exports are here"
            remedy = "import one of those, or export it there"
            own = [each.partition(":")[2] for each in known if each.startswith(f"{stack}:")]
            near = get_close_matches(rest, own, 3, _LIKE)
            remedy = f"did you mean {' or '.join(near)}?" if near else remedy
            yield resource.find(Code.REFERENCE, path, found, remedy, Level.WARNING)


def _is_foreign(name: str, known: list[str], templates: TemplateSet) -> bool:
    """Tell a name below a stack's prefix all of whose exports are at hand, in one template."""
    stack, colon, _ = name.partition(":")
    own = [each for each in known if colon and each.startswith(f"{stack}:")]
    files = {templates.exporter(each) for each in own}
    of_cdk = len(own) >= _SEVERAL and all(each.startswith(f"{stack}:{_OF_CDK}") for each in own)
    near = name in known or get_close_matches(name, known, 1, NEARLY)
    return of_cdk and len(files) == 1 and None not in files and not near


def circles(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse two stacks of which each imports from the other: neither can be made first.

    CloudFormation User Guide, "Fn::ImportValue": an export is there when its stack is made.
    """
    between: dict[tuple[str, str], list[_Import]] = {}
    for each in _imports(templates):
        giver = templates.exporter(each[2])
        if giver is not None and giver != each[0].file:
            between.setdefault((each[0].file, giver), []).append(each)
    for (taker, giver), listed in between.items():
        back = between.get((giver, taker))
        # The side with fewer imports is the one that was added.
        if back is None or (len(listed), taker) > (len(back), giver):
            continue
        resource, path, _ = listed[0]
        found = f"imported from {PurePath(giver).name}, which imports {len(back)} of this stack's "
        found += "exports: neither of the two stacks can be made first"
        remedy = "move what is needed into the stack that is made first, or give it as a parameter"
        yield resource.find(Code.REFERENCE, path, found, remedy)


def _imports(templates: TemplateSet) -> Iterator[_Import]:
    for resource in templates.everything():
        for path, name in imported(dict(resource.properties), ()):
            if written(name):
                yield resource, path, name
