"""Rules over the ConfigMap aws-auth: which IAM roles are nodes and users."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json, read_documents
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

_NAME = "aws-auth"
_ROLE = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[\w+=,.@-]+")
_WITH_PATH = re.compile(r"(arn:aws[a-z-]*:iam::[0-9]{12}:role)/(?:[\w+=,.@-]+/)+([\w+=,.@-]+)")
_USER = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:(user/.+|root)")
_OF_NODES = ("system:bootstrappers", "system:nodes")
_NODE = "system:node:{{EC2PrivateDNSName}}"
# kubernetes-sigs/aws-iam-authenticator, pkg/server/server.go, renderTemplate.
_TEMPLATES = ("AccessKeyID", "AccountID", "EC2PrivateDNSName", "SessionName", "SessionNameRaw")
_USERNAME = re.compile(r"username:.*?\{\{(\w+)\}\}")
_CLOSE = 0.7
# kubernetes/apiserver, pkg/authentication/user/user.go (masters, nodes, monitoring, authenticated
# and unauthenticated) and serviceaccount/util.go; kubernetes/cluster-bootstrap, token/api, for
# bootstrappers; EKS itself maps the role of Fargate's pods to node-proxier, which Kubernetes has
# for a role alone (plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go).
_GROUPS = (
    "system:authenticated",
    "system:bootstrappers",
    "system:masters",
    "system:monitoring",
    "system:node-proxier",
    "system:nodes",
    "system:serviceaccounts",
    "system:unauthenticated",
)
# `system:` names differ in few letters, so a slip is a letter or two.
_SLIP = 0.9
# A name of one node may stand there in full: one node joins by it. What is no such name is a word.
_NO_NODE = re.compile(r"system:node:(?!i-|ip-)[a-z0-9-]*")
_KEYS = ("mapAccounts", "mapRoles", "mapUsers")
_PARTS = {"mapRoles": "rolearn", "mapUsers": "userarn"}


def maps(manifest: Manifest) -> Iterator[Finding]:
    """Require of aws-auth lists of roles as a text, each as EKS compares it.

    EKS User Guide, "Grant IAM users access to Kubernetes with a ConfigMap" and "Troubleshoot
    problems with Amazon EKS clusters and nodes": an ARN has no path, and nodes have two groups.
    """
    if manifest.kind != "ConfigMap" or manifest.name != _NAME:
        return
    if manifest.namespace not in {None, "kube-system"}:
        found = f"namespace {shown(manifest.namespace)}, and EKS reads it in kube-system"
        yield _found(manifest, ("metadata", "namespace"), found, "write kube-system")
    yield from _unread(manifest)
    for part, key in _PARTS.items():
        value = (mapping(manifest.body.get("data")) or {}).get(part)
        path: Path = ("data", part)
        written = text(value)
        if is_absent(value) or written is None:
            continue
        for name in _USERNAME.findall(written):
            close = get_close_matches(name, _TEMPLATES, 1, _CLOSE)
            if close and name not in _TEMPLATES:
                found = (
                    f"{{{{{name}}}}} in a username, which nothing fills in: nobody gets in by it"
                )
                yield _found(manifest, path, found, f"did you mean {{{{{close[0]}}}}}?")
        # `{{EC2PrivateDNSName}}` is EKS's own; without quotes it is a mapping to YAML.
        documents = read_documents(re.sub(r"\{\{(\w+)\}\}", r"__\1", written), "")
        listed = documents[0].value if len(documents) == 1 else None
        if documents and documents[0].findings:
            remedy = "write a list of mappings, indented alike"
            yield _found(manifest, path, "no YAML: nobody it names gets in", remedy)
        elif not isinstance(listed, list):
            yield _found(manifest, path, "no list", f"write - {key}: ... for each")
        else:
            entries = [mapping(each) or {} for each in items(listed) or []]
            for index, each in enumerate(entries):
                yield from _entry(manifest, path, index, each, key)
            yield from _without_nodes(manifest, path, entries, key)


def _unread(manifest: Manifest) -> Iterator[Finding]:
    for name in mapping(manifest.body.get("data")) or {}:
        close = get_close_matches(name, _KEYS, 1, _CLOSE)
        if name not in _KEYS and close:
            found = f"EKS reads no {name}: nobody it names gets in, and no node joins by it"
            yield _found(manifest, ("data", name), found, f"did you mean {close[0]}?")


def _without_nodes(
    manifest: Manifest, path: Path, entries: "list[dict[str, Json]]", key: str
) -> Iterator[Finding]:
    """Find a list of roles that throws the nodes out, as `kubectl apply` replaces the whole text.

    EKS User Guide, "Troubleshoot problems with Amazon EKS clusters and nodes"; pulumi/pulumi-eks,
    issue 883.
    """
    if key == "rolearn" and entries and not any(_is_of_nodes(each) for each in entries):
        found = "no role of nodes: applied, it takes away the entries that EKS made, and nodes "
        found += "without an access entry drop out"
        remedy = f"add the nodes' role, username: {_NODE}, groups: {', '.join(_OF_NODES)}"
        yield _found(manifest, path, found, remedy, Level.WARNING)


def _is_of_nodes(body: Mapping[str, Json]) -> bool:
    said = (text(body.get("username")) or "", text(body.get("rolearn")) or "")
    groups = {text(each) for each in items(body.get("groups")) or []}
    near = said[0].startswith("system:node") or not groups.isdisjoint(_OF_NODES)
    return near or any(is_placeholder(each) for each in said)


def _found(
    manifest: Manifest, path: Path, found: str, remedy: str, level: Level = Level.ERROR
) -> Finding:
    return manifest.find(Code.NODE_ROLES, path, found, remedy, level)


def _entry(
    manifest: Manifest, path: Path, index: int, body: Mapping[str, Json], key: str
) -> Iterator[Finding]:
    arn = text(body.get(key))
    if arn is None:
        yield _found(manifest, path, f"entry {index} has no {key}", f"write {key}: with its ARN")
        return
    if is_placeholder(arn):
        return
    place: Path = (*path, index)
    for name in sorted(body.keys() - {key, "username", "groups"}):
        close = get_close_matches(name, (key, "username", "groups"), 1, _CLOSE)
        if close:
            found = f"{name} of entry {index} is read by nobody"
            yield _found(manifest, (*place, name), found, f"write {close[0]}")
    with_path, form = _WITH_PATH.fullmatch(arn), _ROLE if key == "rolearn" else _USER
    if with_path and key == "rolearn":
        found = f"{shown(arn)} has a path, with which EKS never meets the role"
        yield _found(manifest, (*place, key), found, f"write {with_path[1]}/{with_path[2]}")
    elif not form.fullmatch(arn):
        what = "role" if key == "rolearn" else "user"
        found = f"{shown(arn)} is no ARN of a {what}"
        remedy = f"write it like arn:aws:iam::111122223333:{what}/NAME"
        other = next(each for each in _PARTS if _PARTS[each] != key)
        if (_USER if key == "rolearn" else _ROLE).fullmatch(arn) and not arn.endswith(":root"):
            remedy = f"move it to {other}, as {_PARTS[other]}"
        yield _found(manifest, (*place, key), found, remedy)
    yield from _of_groups(manifest, place, body)


def _of_groups(manifest: Manifest, place: Path, body: Mapping[str, Json]) -> Iterator[Finding]:
    username = _plain(text(body.get("username")) or "")
    if username != (text(body.get("username")) or "") and username.startswith("system:node:"):
        found = "a username in angle brackets, which no node has: nodes do not join by it"
        yield _found(manifest, (*place, "username"), found, f"write {_NODE}")
    groups = [text(each) for each in items(body.get("groups")) or []]
    nodes = username.startswith("system:node:")
    missing = [each for each in _OF_NODES if each not in groups] if nodes else []
    for group in groups:
        close = _meant(group)
        if close is None:
            continue
        found = f"{shown(group)} is no group of Kubernetes"
        if close in missing:
            missing.remove(close)
            found += f", and nodes without {close} do not join"
            yield _found(manifest, (*place, "groups"), found, f"write {close}")
        else:
            found += ": it gives no rights unless a binding names it"
            remedy = f"did you mean {close}?"
            yield _found(manifest, (*place, "groups"), found, remedy, Level.WARNING)
    if missing:
        found = f"nodes without {' and '.join(missing)}: they do not join"
        yield _found(manifest, (*place, "groups"), found, f"add {', '.join(missing)} to groups")
    if set(groups) >= {*_OF_NODES}:
        if not nodes:
            found = f"groups of nodes, and username {shown(body.get('username'))}: they do not join"
            yield _found(manifest, (*place, "username"), found, f"write username: {_NODE}")
        elif _NO_NODE.fullmatch(username):
            # Kubernetes, "Using Node Authorization": the user is system:node:<nodeName>.
            found = f"username {shown(username)} for each node, and a node's has its own name: "
            found += "the node authorizer refuses them"
            yield _found(manifest, (*place, "username"), found, f"write {_NODE}")


def _plain(word: str) -> str:
    """Return a word without the angle brackets of a document that it was copied from."""
    return word[1:-1] if word.startswith("<") and word.endswith(">") else word


def _meant(group: str | None) -> str | None:
    """Return the group of Kubernetes that a word which is none of them nearly is."""
    if group is None or group in _GROUPS or group.count(":") != 1:
        return None
    if _plain(group) in _GROUPS:
        return _plain(group)
    close = get_close_matches(group, _GROUPS, 1, _SLIP)
    return close[0] if close else None
