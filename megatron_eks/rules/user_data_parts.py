"""Rules over the parts of user data, and over the NodeConfig that nodeadm reads from them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.rules.launch_templates import DATA, LaunchTemplate, launch_templates
from megatron_eks.rules.node_configs import (
    OF_CLUSTER,
    faults_of_config,
    faults_of_head,
    read_config,
)
from megatron_eks.rules.node_start import user_data_of
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, mapping, shown, text, written

_HEADER = re.compile(
    r"^content-type:\s*multipart/[a-z]+;[^\n]*?boundary=(?P<own>[^\s;]+)",
    re.IGNORECASE | re.MULTILINE,
)
_HEADER_LINE = re.compile(r"(content-|mime-version)", re.IGNORECASE)
_TYPE = re.compile(r"^content-type:\s*(?P<type>[^\s;]+)", re.IGNORECASE | re.MULTILINE)
_FIELD = re.compile(r"([!-9;-~]+:|[ \t])")
_NODE_CONFIG = re.compile(r"kind[\"']?:\s*[\"']?NodeConfig")
_OF_NODEADM = "application/node.eks.aws"
_SCRIPT = "text/x-shellscript"
_CONFIG_STARTS = ("---", "apiVersion", "kind", "{")
_SCRIPT_START = re.compile(r"^#!", re.MULTILINE)


@dataclass(frozen=True)
class _Part:
    type: str
    body: str
    """None of its headers; empty where neither a blank line nor a script ends them."""
    ended: bool
    loose: str | None
    """The first line among its headers that is none."""


def parts(templates: TemplateSet) -> Iterator[Finding]:
    """Require a multipart message whose parts are found, each of a type that is read.

    RFC 2046, 5.1.1; EKS User Guide, "Customize managed nodes with launch templates"; cloud-init,
    "User data formats": a part behind another boundary, or of another type, is not looked at.
    """
    for template in launch_templates(templates):
        data = user_data_of(template) or ""
        header = _HEADER.search(data)
        if header is None:
            continue
        own = header["own"].strip("\"'")
        found = _boundary(data, own)
        if found is not None:
            remedy = f"write --{own} before each part and --{own}-- behind the last"
            yield _wrong(template, found, remedy)
            continue
        if _OF_NODEADM in data and "\n\n" not in data.replace("\r", "").split(f"--{own}\n")[0]:
            # RFC 5322, 2.1; amazon-eks-ami issue 1701: nodeadm reads the whole as one YAML then.
            said = f"no blank line between the first headers and --{own}: nodeadm reads no part"
            yield _wrong(template, said, f"add a blank line before the first --{own}")
            continue
        if f"--{own}--" not in data.splitlines() and "${" not in own:
            said = f"no line --{own}-- behind the last part: what reads it may find no end"
            yield _wrong(template, said, "add it", Level.WARNING)
        for part in _parts(data, own):
            yield from _of_a_type(template, part)


def _boundary(data: str, own: str) -> str | None:
    """Say what is wrong with the lines between parts; None where they are those declared."""
    lines = data.splitlines()
    if f"--{own}" in lines:
        for line, below in pairwise(lines):
            known = line in {f"--{own}", f"--{own}--"} or not line.startswith("--")
            if not known and _HEADER_LINE.match(below):
                return f"a part begins with {shown(line)}, and the boundary is {shown(own)}"
        return None
    indented = any(line.strip() == f"--{own}" for line in lines)
    others = [line for line in lines if line.startswith("--") and line.strip("-")]
    if indented:
        return f"the lines --{own} are indented, so no part is found"
    said = f", only {shown(others[0])}" if others else ""
    return f"boundary {shown(own)}, and no line is --{own}{said}: no part is found"


def _parts(data: str, own: str) -> list[_Part]:
    found = []
    for chunk in re.split(rf"^--{re.escape(own)}(?:--)?[ \t]*$", data, flags=re.MULTILINE)[1:]:
        plain = chunk.strip("\n").replace("\r", "")
        head, blank, body = plain.partition("\n\n")
        kind = _TYPE.search(head)
        # To cloud-init, in Python's email, a line that is no header ends them too.
        script = _SCRIPT_START.search(head)
        if script is not None:
            blank, body = "", plain[script.start() :]
        if chunk.strip():
            type_ = kind["type"].lower() if kind else ""
            loose = next((line for line in head.splitlines() if not _FIELD.match(line)), None)
            found.append(_Part(type_, body, bool(blank), loose))
    return found


def _is_of_a_node(template: LaunchTemplate) -> bool:
    """Tell whether nodeadm reads this; elsewhere cloud-init alone does, mildly."""
    return bool(template.node_groups) or "node.eks.aws" in (user_data_of(template) or "")


def _of_a_type(template: LaunchTemplate, part: _Part) -> Iterator[Finding]:
    config = _NODE_CONFIG.search(part.body) is not None
    unread = part.type == _SCRIPT and part.loose is not None and "${" not in part.loose
    if unread and _is_of_a_node(template):
        # amazon-eks-ami issue 2318: nodeadm ends at the first part that it cannot read.
        found = f"no blank line between the headers of a part and {shown(part.loose)}: nodeadm "
        found += "cannot read the message, and no node joins"
        yield _wrong(template, found, "add a blank line behind Content-Type")
    elif part.type == _OF_NODEADM and not part.ended:
        found = "no blank line between the headers of a part and its content: it is empty"
        yield _wrong(template, found, "add a blank line behind Content-Type")
    elif config and part.type not in {_OF_NODEADM, _SCRIPT, ""}:
        found = f"a NodeConfig as {part.type}, which nodeadm does not read"
        yield _wrong(template, found, f"write Content-Type: {_OF_NODEADM}")
    elif part.type == _OF_NODEADM and part.body.lstrip().startswith("#!"):
        found = f"a script as {_OF_NODEADM}, which nodeadm takes for a NodeConfig"
        yield _wrong(template, found, f"write Content-Type: {_SCRIPT}")
    elif config and part.type == _SCRIPT and part.body.lstrip().startswith(_CONFIG_STARTS):
        found = "a NodeConfig as a script: cloud-init runs it and nodeadm does not read it"
        yield _wrong(template, found, f"write Content-Type: {_OF_NODEADM}")
    elif part.type == _SCRIPT and template.node_groups and not part.ended and part.body:
        found = "no blank line between the headers of a part and its script: cloud-init takes it, "
        found += "and nodeadm, on Amazon Linux 2023, refuses the message"
        yield _wrong(template, found, "add a blank line before #!", Level.WARNING)
    elif part.type == _SCRIPT and part.body.strip() and not part.body.lstrip().startswith("#!"):
        found = "a script without #! in its first line, which cloud-init does not run"
        yield _wrong(template, found, "begin it with #!/bin/bash")


def configs(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a NodeConfig what nodeadm needs to join, and the cluster's own name and range.

    amazon-eks-ami, nodeadm, "API" and issue 1885: EKS fills in the cluster of managed nodes with an
    AMI of its own alone; without it, and with another range of Services, no node works.
    """
    for template in launch_templates(templates):
        read = [read_config(each) for each in nodeadm_parts(user_data_of(template) or "")]
        if not read:
            continue
        if None in read:
            found = "a NodeConfig that is no YAML: the node does not start"
            yield _wrong(template, found, "correct it: one mapping, with spaces before nested keys")
            continue
        for found, remedy in faults_of_head([each or {} for each in read]):
            yield _wrong(template, found, remedy)
        specs = [mapping((each or {}).get("spec")) or {} for each in read]
        for spec in specs:
            for found, remedy in faults_of_config(spec):
                yield _wrong(template, found, remedy)
            yield from _of_cluster(template, mapping(spec.get("cluster")) or {})
        cluster: dict[str, Json] = {}
        for spec in specs:
            cluster |= mapping(spec.get("cluster")) or {}
        managed = bool(template.node_groups) and is_absent(template.data.get("ImageId"))
        missing = [key for key in OF_CLUSTER if is_absent(cluster.get(key))]
        if (
            missing
            and not managed
            and (cluster or template.node_groups or _is_scaled(template, templates))
        ):
            found = f"a NodeConfig without cluster.{', cluster.'.join(missing)}: no node joins"
            remedy = "add them: EKS does so for managed nodes with an AMI of its own alone"
            yield _wrong(template, found, remedy)
        yield from _same_cluster(template, cluster, templates)


def nodeadm_parts(data: str) -> list[str]:
    """Return the parts of user data that nodeadm reads."""
    header = _HEADER.search(data)
    if header is not None:
        listed = _parts(data, header["own"].strip("\"'"))
        return [each.body for each in listed if each.type == _OF_NODEADM and each.body.strip()]
    return (
        [data]
        if data.lstrip().startswith(("apiVersion", "---")) and _NODE_CONFIG.search(data)
        else []
    )


def _of_cluster(template: LaunchTemplate, said: "dict[str, Json]") -> Iterator[Finding]:
    """Require the address and the certificate in the form that DescribeCluster gives them.

    amazon-eks-ami, nodeadm, "API", ClusterDetails: certificateAuthority is bytes, in Base64.
    """
    endpoint, authority = (
        text(said.get("apiServerEndpoint")),
        text(said.get("certificateAuthority")),
    )
    if endpoint and "$" not in endpoint and "://" not in endpoint and ".eks." in endpoint:
        found = f"cluster.apiServerEndpoint {shown(endpoint)} without https://: no node joins"
        yield _wrong(template, found, f"write https://{endpoint}")
    if authority and authority.lstrip().startswith("-----BEGIN"):
        found = "cluster.certificateAuthority as PEM, and nodeadm takes Base64: no node joins"
        yield _wrong(template, found, "write it in Base64, as describe-cluster gives it")


def _same_cluster(
    template: LaunchTemplate, said: "dict[str, Json]", templates: TemplateSet
) -> Iterator[Finding]:
    clusters = list(templates.resources("AWS::EKS::Cluster"))
    if len(clusters) != 1:
        return
    cluster, name = clusters[0], text(said.get("name"))
    config = mapping(cluster.properties.get("KubernetesNetworkConfig")) or {}
    own = text(templates.default(config.get("ServiceIpv4Cidr"), cluster.file))
    cidr = text(said.get("cidr"))
    if own is not None and cidr is not None and "$" not in cidr and cidr != own:
        found = f"cluster.cidr {cidr}, and Services of {cluster.id} are in {own}: pods ask a name "
        found += "server that is not there"
        yield _wrong(template, found, f"write cidr: {own}")
    named = _name(cluster, templates)
    if named and name is not None and "$" not in name and name != named:
        found = f"cluster.name {shown(name)}, and {cluster.id} is {shown(named)}: no node joins"
        yield _wrong(template, found, f"write name: {named}")


def _name(cluster: Resource, templates: TemplateSet) -> str | None:
    value = templates.default(cluster.properties.get("Name"), cluster.file)
    name = written(value)
    return None if name is None or "$" in name else name


def _is_scaled(template: LaunchTemplate, templates: TemplateSet) -> bool:
    """Tell whether an Auto Scaling group launches nodes from it."""
    return any(
        True
        for each in templates.resources("AWS::AutoScaling::AutoScalingGroup")
        if f'"{template.resource.id}"' in repr(dict(each.properties)).replace("'", '"')
    )


def _wrong(
    template: LaunchTemplate, found: str, remedy: str, level: Level = Level.ERROR
) -> Finding:
    return template.resource.find(Code.USER_DATA, (DATA, "UserData"), found, remedy, level)
