"""Rules over roles whose rights are on another resource than the one that their user works on."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.config.load import Json
from megatron_eks.rules.policies import HOLDERS, ROLE, statements, words
from megatron_eks.rules.role_needs import has_action
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping, written

_PART = re.compile(r"\$\{(?P<name>[A-Za-z0-9]+)(\.[A-Za-z0-9.]+)?\}")
_REPOSITORY = "AWS::ECR::Repository"
_LOGS = "AWS::Logs::LogGroup"
_WRITES = "logs:PutLogEvents"
_OF_BUILDS = "/aws/codebuild/"
_NAMES = {_REPOSITORY: "RepositoryName", _LOGS: "LogGroupName"}
# Where a role goes, and what takes it there (IAM User Guide, "Grant permissions to pass a role").
_PASSED_FOR = {
    "ec2:runinstances": "ec2.amazonaws.com",
    "ec2:createfleet": "ec2.amazonaws.com",
    "eks:createnodegroup": "ec2.amazonaws.com",
    "eks:createcluster": "eks.amazonaws.com",
    "eks:createfargateprofile": "eks-fargate-pods.amazonaws.com",
    "codebuild:createproject": "codebuild.amazonaws.com",
    "lambda:createfunction": "lambda.amazonaws.com",
}
# OpenSearch Service Guide, "Configuring Amazon Cognito authentication for OpenSearch Dashboards":
# the role that OpenSearch takes is passed to Cognito.
_HANDING_ON = re.compile(r"cognito-identity(-us-gov)?\.amazonaws\.com")
_PASSING = "iam:PassRole"
_PASSED_TO = "iam:passedtoservice"
_SUFFIX = "${AWS::URLSuffix}"


def builds(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a role rights on the repository and the log group that its user names.

    ECR User Guide, "Private repository policies"; CodeBuild User Guide, "LogsConfig": the push ends
    with 403 after the whole build, and the log is empty.
    """
    for log in templates.resources("AWS::EC2::FlowLog"):
        role = templates.target(log.properties.get("DeliverLogsPermissionArn"), log.file)
        if role is not None and role.type == ROLE:
            group = log.properties.get("LogGroupName")
            yield from _elsewhere(log, role, (_LOGS, _WRITES, [group]), templates)
    for project in templates.resources("AWS::CodeBuild::Project"):
        role = templates.target(project.properties.get("ServiceRole"), project.file)
        if role is None or role.type != ROLE:
            continue
        environment = mapping(project.properties.get("Environment")) or {}
        values = [
            (mapping(each) or {}).get("Value")
            for each in items(environment.get("EnvironmentVariables")) or []
        ]
        logs = mapping(project.properties.get("LogsConfig")) or {}
        group = (mapping(logs.get("CloudWatchLogs")) or {}).get("GroupName")
        for use in (
            (_REPOSITORY, "ecr:PutImage", values),
            (_LOGS, _WRITES, [group]),
        ):
            yield from _elsewhere(project, role, use, templates)
        if (mapping(logs.get("CloudWatchLogs")) or {}).get("Status") != "DISABLED":
            yield from _own_log(project, role, group, templates)


def _elsewhere(
    user: Resource, role: Resource, use: "tuple[str, str, list[Json]]", templates: TemplateSet
) -> Iterator[Finding]:
    """Find rights to do something on other resources than the user names."""
    kind, action, used = use
    named = _named(used, user.file, kind, templates)
    allowed = _allowed(role, action, templates)
    if named and allowed and not any(_covers(allowed, each) for each in named):
        others = ", ".join(sorted(each.id for each in allowed if isinstance(each, Resource)))
        found = f"{user.id} uses {named[0].id}, and this role may {action} on "
        found += f"{others or 'other resources'} alone"
        remedy = f"allow {action} and its like on {named[0].id}"
        yield role.find(Code.POLICY, (), found, remedy)


def _named(values: list[Json], file: str, kind: str, templates: TemplateSet) -> list[Resource]:
    found = []
    for value in values:
        for match in _PART.finditer(written(value) or ""):
            target = templates.target({"Ref": match["name"]}, file)
            if target is not None and target.type == kind:
                found.append(target)
    return found


def _allowed(role: Resource, action: str, templates: TemplateSet) -> "list[Resource | str]":
    """Return what a role may do an action on; nothing where that cannot be known."""
    if not is_absent(role.properties.get("ManagedPolicyArns")):
        return []
    found: list[Resource | str] = []
    for holder in holders_of(role, templates):
        for body in statements_of(holder):
            actions = {each.lower() for each in words(body.get("Action"))}
            if body.get("Effect") != "Allow" or not has_action(actions, action):
                continue
            value = body.get("Resource")
            for each in value if isinstance(value, list) else [value]:
                said = written(each)
                if said is None or is_absent(each):
                    return []
                match = _PART.match(said)
                target = templates.target({"Ref": match["name"]}, holder.file) if match else None
                if match is not None and target is None and said == match[0]:
                    return []
                found.append(target or said)
    return found


def holders_of(role: Resource, templates: TemplateSet) -> list[Resource]:
    """Return a role, and the policies at hand that are attached to it."""
    holders = [role]
    for holder in templates.resources(*HOLDERS):
        taken = [*(items(holder.properties.get("Roles")) or []), holder.properties.get("RoleName")]
        if holder is not role and role in templates.targets(taken, holder.file):
            holders.append(holder)
    return holders


def statements_of(holder: Resource) -> "Iterator[dict[str, Json]]":
    """Return the statements of a role or of a policy."""
    inline = items(holder.properties.get("Policies")) or []
    documents = [(mapping(each) or {}).get("PolicyDocument") for each in inline]
    for document in (holder.properties.get("PolicyDocument"), *documents):
        yield from statements(document) or []


def _own_log(
    project: Resource, role: Resource, group: Json, templates: TemplateSet
) -> Iterator[Finding]:
    """Find a log group that a build names, or gets by itself, and may not write to.

    CodeBuild User Guide, "CloudWatchLogsConfig": without a name it is /aws/codebuild/PROJECT.
    """
    given = project.properties.get("Name")
    own = "${}" if is_absent(given) else written(given) or "${}"
    name = f"{_OF_BUILDS}{own}" if is_absent(group) else written(group)
    allowed = _allowed(role, _WRITES, templates)
    if name is None or name.startswith("${"):
        return
    if allowed and not any(_reaches(each, _LOGS, name) for each in allowed):
        found = f"{project.id} writes its log to {name.replace('${}', '...')}, and this role may "
        found += f"{_WRITES} on other groups alone: the build has no log, and fails"
        yield role.find(Code.POLICY, (), found, f"allow {_WRITES} and its like on that group")


def _covers(allowed: "list[Resource | str]", used: Resource) -> bool:
    name = written(used.properties.get(_NAMES[used.type]))
    for each in allowed:
        if each is used or (isinstance(each, str) and f"${{{used.id}}}" in each):
            return True
        if isinstance(each, str) and _reaches(each, used.type, name):
            return True
    return False


def _reaches(each: "Resource | str", kind: str, name: str | None) -> bool:
    """Tell whether a right on something may be one on what has this name."""
    if name is None:
        return True
    if not isinstance(each, str):
        # The name of one without a name of its own nobody knows.
        own = written(each.properties.get(_NAMES[each.type])) if each.type in _NAMES else None
        return own is None or _may_meet(own, name)
    said = re.sub(r"\$\{AWS::[A-Za-z]+\}", "*", each)
    end = said.rpartition(":log-group:" if kind == _LOGS else ":repository/")[2]
    if said == "*" or "${" in end:
        return True
    return fnmatchcase(name, end.removesuffix(":*")) or ("${" in name and _may_meet(name, end))


def _may_meet(one: str, other: str) -> bool:
    """Tell whether two names may be equal, as far as they are written out."""
    first, second = (re.split(r"\$\{|[*?]", each)[0] for each in (one, other))
    whole = one == first and other == second
    return one == other if whole else first.startswith(second) or second.startswith(first)


def passed(templates: TemplateSet) -> Iterator[Finding]:
    """Require of roles that somebody may pass on that the service which gets them may take them.

    IAM User Guide, "Grant a user permissions to pass a role to an AWS service"; Karpenter,
    "CloudFormation", AllowPassingInstanceRole: every launch is UnauthorizedOperation otherwise.
    """
    for holder in templates.resources(*HOLDERS):
        listed = list(statements_of(holder))
        given = {each.lower() for body in listed for each in words(body.get("Action"))}
        for body in listed:
            actions = {each.lower() for each in words(body.get("Action"))}
            if body.get("Effect") != "Allow" or not has_action(actions, _PASSING):
                continue
            value = body.get("Resource")
            every = value if isinstance(value, list) else [value]
            roles = [_role(each, holder, templates) for each in every]
            said = _services(body)
            services = said or {_PASSED_FOR[each] for each in given if each in _PASSED_FOR}
            trusts = [_trusted(each) if each is not None else None for each in roles]
            if not services or not roles or None in trusts:
                continue
            if not said and any(_may_be_for_more(given, each or set()) for each in trusts):
                continue
            if any(_HANDING_ON.fullmatch(each) for each in said):
                continue
            if not any(_takes(service, each) for each in trusts if each for service in services):
                names = ", ".join(each.id for each in roles if each is not None)
                trusted = ", ".join(sorted({name for each in trusts if each for name in each}))
                found = (
                    f"may pass {names} to {', '.join(sorted(services))}, and it trusts {trusted}"
                )
                remedy = "name the role that the service takes, such as that of the nodes"
                if said:
                    remedy += f", or write {trusted} under iam:PassedToService"
                yield holder.find(Code.POLICY, (), found, remedy)


def _may_be_for_more(given: set[str], trusted: set[str]) -> bool:
    """Tell whether something else that is allowed may take a role to who it trusts."""
    known = set(_PASSED_FOR.values())
    for_it = [action for action, service in _PASSED_FOR.items() if service in trusted]
    return not trusted <= known or any(has_action(given, each) for each in for_it)


def _role(value: Json, holder: Resource, templates: TemplateSet) -> Resource | None:
    """Return the role that a resource of a statement is, written as an attribute or an ARN."""
    said = written(value) or ""
    matches = [templates.target({"Ref": m["name"]}, holder.file) for m in _PART.finditer(said)]
    roles = [each for each in matches if each is not None and each.type == ROLE]
    return roles[0] if len(roles) == 1 and not said.endswith("*") else None


def _services(body: "dict[str, Json]") -> set[str]:
    found: set[str] = set()
    for operator in (mapping(body.get("Condition")) or {}).values():
        for key, value in (mapping(operator) or {}).items():
            if key.lower() == _PASSED_TO:
                found |= set(words(value))
    return found


def _trusted(role: Resource) -> set[str] | None:
    listed = statements(role.properties.get("AssumeRolePolicyDocument"))
    found: set[str] = set()
    for body in listed or []:
        principal = mapping(body.get("Principal"))
        service = (principal or {}).get("Service")
        every = service if isinstance(service, list) else [service]
        # Partitions differ in the end of a service's name alone.
        names = [(written(each) or "").replace(_SUFFIX, "amazonaws.com") for each in every]
        if principal is None or (not is_absent(service) and any("$" in n or not n for n in names)):
            return None
        found |= {name for name in names if name}
    return found or None


def _takes(service: str, trusted: set[str]) -> bool:
    plain = service.removesuffix(".cn")
    return any(fnmatchcase(each.removesuffix(".cn"), plain) for each in trusted)
