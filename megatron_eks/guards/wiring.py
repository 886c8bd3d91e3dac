"""Guards of what holds templates together: lists, policies, imports and outputs."""

from collections.abc import Iterator
from pathlib import PurePath

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.templates import Templates, template_guard
from megatron_eks.guards.values import Value

_LUSTRE = {"Id": "", "DnsName": "DNSName", "MountName": "LustreMountName"}
_OUTPUTS = (
    *(("FSx::FileSystem", f"Lustre{end}", attribute) for end, attribute in _LUSTRE.items()),
    ("EFS::FileSystem", "EfsId", ""),
    ("EFS::AccessPoint", "EfsAccessPointId", "AccessPointId"),
)


@template_guard
def lists_policies_and_imports(templates: Templates) -> Iterator[Finding]:
    """Name nothing twice, and import what is exported (CloudFormation, "Fn::ImportValue")."""
    stacks = {PurePath(each.file).name.split(".")[0] for each in templates.resources}
    stacks |= {each.rpartition("-")[2] for each in stacks}
    for part in (part for each in templates.resources for part in _inside(each.body)):
        raw = part.raw if isinstance(part.raw, list) else []
        again = [at for at, each in enumerate(raw) if each in raw[:at]]
        for at in again if not part.name.startswith("Fn::") else ():
            found = f"the same as an element of {part.name} before it: AWS refuses one"
            yield part[at].finding(Code.TWICE, found, "remove one of the two", Level.WARNING)
        if part.raw == [] and part.name in {"Action", "Resource", "Roles", "SubnetIds", "Subnets"}:
            yield part.finding(Code.REFERENCE, f"{part.name} is empty: AWS refuses it", "fill it")
        if part["Statement"]:
            version, why = part["Version"], "variables in the policy are plain text"
            yield from version.must_be(Code.POLICY, "2012-10-17", why=why, level=Level.WARNING)
        value = part["Fn::ImportValue"]
        stack, _, name = value.text.partition(":")
        known = {stack, stack.rpartition("-")[2]} & stacks
        if value and known and value.text not in templates.exports:
            found = f"{stack} exports no {name}: CloudFormation refuses the stack"
            yield value.finding(Code.REFERENCE, found, f"correct it, or add the output to {stack}")


@template_guard
def outputs(templates: Templates) -> Iterator[Finding]:
    """Output what the charts mount: `meks outputs` writes it into outputs.json."""
    for kind, name, attribute in _OUTPUTS:
        for system in templates.of(kind):
            value = {"Fn::GetAtt": [system.name, attribute]} if attribute else {"Ref": system.name}
            given = [e["Value"].raw for key, e in templates.outputs(system.file) if name in key]
            if value not in given:
                found = f"no output {name} with its value: the charts cannot mount it"
                yield system.body["Outputs"].finding(Code.REFERENCE, found, f"add {name}: {value}")


def _inside(value: Value) -> Iterator[Value]:
    yield value
    for inner in [*value, *(each for _, each in value.items())]:
        yield from _inside(inner)
