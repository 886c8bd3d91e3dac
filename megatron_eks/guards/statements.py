"""Policy documents: what they must say, by statement; lists, imports and outputs."""

import re
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from megatron_eks.config.errors import TOKEN
from megatron_eks.guards.codes import Rule
from megatron_eks.guards.templates import Templates, template_guard
from megatron_eks.guards.values import Found, Value, inside, report

# What `meks` reads (config/outputs.py): type, a part of the output's name, and the attribute.
_OUTPUTS = (
    ("FSx::FileSystem", "LustreId", ""),
    ("FSx::FileSystem", "LustreDnsName", ".DNSName"),
    ("FSx::FileSystem", "LustreMountName", ".LustreMountName"),
    ("EFS::FileSystem", "EfsId", ""),
    ("EFS::AccessPoint", "EfsAccessPointId", ".AccessPointId"),
    ("CodeBuild::Project", "BuildProject", ""),
    ("ECR::Repository", "Image", ".RepositoryUri"),
    ("EC2::Instance", "BastionId", ""),
)


# Policies of what is used, and not of who uses it. Those of endpoints limit, and allow nothing.
_OF_RESOURCES = {
    "AWS::KMS::Key": "KeyPolicy",
    "AWS::S3::BucketPolicy": "PolicyDocument",
    "AWS::SNS::TopicPolicy": "PolicyDocument",
    "AWS::ECR::Repository": "RepositoryPolicyText",
    "AWS::EFS::FileSystem": "FileSystemPolicy",
}


@dataclass(frozen=True)
class Need:
    """What a statement must cover; `a|b` is either, and an empty text is anything."""

    code: StrEnum
    why: str  # what goes wrong else
    actions: tuple[str, ...]
    on: tuple[str, ...] = ()
    who: str = ""
    when: tuple[tuple[str, str, str], ...] = ()  # operator, condition key and value
    effect: str = "Allow"
    warns: object = False


def statements(*documents: Value) -> list[Value]:
    """Return the statements of some policies."""
    return [each for document in documents for each in document["Statement"].listed]


def allows(statement: Value, action: str) -> bool:
    """Tell whether a statement allows an action, on whatever resources."""
    return statement["Effect"].text == "Allow" and _covers(statement["Action"].texts, action)


def is_everybody(principal: Value) -> bool:
    """Tell whether a principal is whoever asks, in any account."""
    return "*" in (*principal.texts, *principal["AWS"].texts)


def texts(templates: Templates, value: Value) -> list[str]:
    """Return the texts of a value or a list; accounts and partitions as CloudFormation's own."""
    filled = [templates.text(each) for each in value.listed]
    filled = [re.sub(r"\b[0-9]{12}\b", "${AWS::AccountId}", each) for each in filled]
    return [re.sub(r"^arn:aws[a-z-]*:", "arn:${AWS::Partition}:", each) for each in filled]


def needs(templates: Templates, documents: list[Value], *wanted: Need) -> Found:
    """Report the part of the nearest statement that is not as it must be; all, if none is near."""
    for need in wanted if documents else ():
        wrong = [_wrong(templates, each, need) for each in statements(*documents)]
        nearest = min(wrong, key=len, default=[])
        if wrong and not nearest:
            continue
        place = nearest[0] if 0 < len(nearest) < 3 else documents[0]["Statement"]  # noqa: PLR2004
        remedy = f"add to a statement: {need.effect} {', '.join(need.actions)}"
        remedy += f" to {need.who.split('|')[0]}" if need.who else ""
        remedy += f" on {' and '.join(need.on)}" if need.on else ""
        remedy += "".join(f" with {test} {key}: {e.split('|')[0]}" for test, key, e in need.when)
        verb = "allows" if need.effect == "Allow" else "denies"
        every = statements(*documents)
        lacking = (e for e in need.actions if not any(allows(one, e) for one in every))
        found = f"no statement {verb} {next(lacking, need.actions[0])} as needed: {need.why}"
        yield place.finding(need.code, found, remedy, warns=need.warns)


def _wrong(templates: Templates, each: Value, need: Need) -> list[Value]:
    principal, conditions = each["Principal"], each["Condition"]
    who = [e for kind in ("AWS", "Service") for e in texts(templates, principal[kind])]
    on = texts(templates, each["Resource"])
    tests = [(texts(templates, conditions[test][key]), right) for test, key, right in need.when]
    free = not need.who and not conditions  # who may do it always may do it then
    right = {
        "Principal": not need.who or _covers(principal.texts + who, need.who),
        "Effect": each["Effect"].raw == need.effect,
        "Action": all(_covers(each["Action"].texts, action) for action in need.actions),
        "Resource": all(_covers(on, wanted) for wanted in need.on),
        "Condition": free or all(_covers(given, value) for given, value in tests),
    }
    return [each[part] for part, is_right in right.items() if not is_right]


def _covers(given: list[str], wanted: str) -> bool:
    """Tell whether one of the patterns given holds what is wanted, or a choice of it."""
    pairs = [(choice.lower(), each.lower()) for choice in wanted.split("|") for each in given]
    return bool(given) if not wanted else any(fnmatchcase(*pair) for pair in pairs)


@template_guard
def open_policies(templates: Templates) -> Found:
    """Open nothing to whoever asks (IAM, "AWS JSON policy elements: Principal")."""
    for each in (e for e in templates.resources if e.type in _OF_RESOURCES):
        for one in statements(each[_OF_RESOURCES[each.type]]):
            wide = one["Effect"].text == "Allow" and is_everybody(one["Principal"])
            found = f"everybody, in any account, may {', '.join(one['Action'].texts)}"
            row = (wide and not one["Condition"], one["Principal"], found)
            yield from report(Rule.OPEN_TO_ALL, *row, "name the account, role or service")


@template_guard
def wiring(templates: Templates) -> Found:
    """Name nothing twice, import what is exported, and output what is read ("Fn::ImportValue")."""
    for kind, name, attribute in _OUTPUTS:
        for each in templates.of(kind):
            given = [value["Value"] for key, value in templates.outputs(each.file) if name in key]
            texts_given = [templates.text(value).partition(":")[0] for value in given]
            if f"${{{each.name}{attribute}}}" not in texts_given:
                found = f"no output {name} of {each.name}: `meks` does not find it"
                remedy = f"add {name} with a Ref, or Fn::GetAtt {attribute}"
                yield each.body["Outputs"].finding(Rule.REFERENCE, found, remedy)
    stacks = {each.partition(":")[0] for each in templates.exports}
    for part in (part for each in templates.resources for part in inside(each.body)):
        raw = part.raw if isinstance(part.raw, list) and not part.name.startswith("Fn::") else []
        for again in (part[at] for at, one in enumerate(raw) if one in raw[:at]):
            found = f"it stands in {part.name} twice: AWS may refuse it"
            yield again.finding(Rule.TWICE, found, "remove one of the two", warns=True)
        secret, found = TOKEN.search(part.text), "a secret in plain text, for all who see the stack"
        remedy = "keep it in Secrets Manager, and revoke this one"
        yield from report(Rule.SECRET_IN_MANIFEST, secret, part, found, remedy)
        if part["Statement"]:
            version, why = part["Version"], "variables in the policy are plain text"
            yield from version.must_be(Rule.POLICY, "2012-10-17", why=why, warns=True)
        stack, _, name = (value := part["Fn::ImportValue"]).text.partition(":")
        if stack in stacks and value.text not in templates.exports:
            found = f"{stack} exports no {name}: CloudFormation refuses the stack"
            yield value.finding(Rule.REFERENCE, found, f"correct it, or add the output to {stack}")


@template_guard
def tags(templates: Templates) -> Found:
    """Give all that has tags those of its stack: bills are sorted by them (AWS Billing, "Tags")."""
    for file in {each.file: None for each in templates.resources}:
        listed = [each["Tags"] for each in templates.resources if each.file == file]
        tagged = [each for each in listed if each[0]]
        # A name is a resource's own, though a file system and its group may share one.
        given = [(e, {str(tag.raw) for tag in e if tag["Key"].text != "Name"}) for e in tagged]
        counted = Counter(tag for _, own in given for tag in own)
        usual = {tag for tag, count in counted.items() if 2 * count > len(given) > 1}
        for place, missing in ((place, sorted(usual - own)) for place, own in given):
            found = f"not {', '.join(missing)}, as what stands beside it"
            yield from report(Rule.PROPERTY, missing, place, found, "add it", warns=True)
