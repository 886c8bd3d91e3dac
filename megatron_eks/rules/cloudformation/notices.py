"""Rules over notices of events, budgets and alarms, and who may bring them where they go."""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.policies import statements, words
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping, text, written

_QUEUE, _TOPIC = "AWS::SQS::Queue", "AWS::SNS::Topic"
_SENDING = {_QUEUE: "sqs:SendMessage", _TOPIC: "sns:Publish"}
# The policies of each, and the property that names it.
_POLICIES = {
    _QUEUE: (("AWS::SQS::QueuePolicy", "Queues"), ("AWS::SQS::QueueInlinePolicy", "Queue")),
    _TOPIC: (("AWS::SNS::TopicPolicy", "Topics"), ("AWS::SNS::TopicInlinePolicy", "TopicArn")),
}
_ACTIONS = ("AlarmActions", "OKActions", "InsufficientDataActions")
_ALARMS = "cloudwatch.amazonaws.com"
_MANAGED = {_QUEUE: "alias/aws/sqs", _TOPIC: "alias/aws/sns"}
_NAMES = ("'QueueName'", "'QueueUrl'", "'TopicName'")
_SUFFIX = "${AWS::URLSuffix}"


@dataclass(frozen=True)
class _Notice:
    """Something that a service sends to a queue or a topic at hand."""

    sender: Resource
    path: Path
    service: str
    target: Resource


def admitted(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a queue or topic that the service whose notices go there may send them.

    EventBridge User Guide, "Using resource-based policies"; Budgets, "Creating an Amazon SNS topic
    for budget notifications"; S3 User Guide, "Granting permissions to publish event notification
    messages": S3 refuses the bucket, and all others lose the notice without a word.
    """
    for notice in _notices(templates):
        listed = _policies_of(notice.target, templates)
        if listed is None:
            continue
        action = _SENDING[notice.target.type]
        remedy = f"allow {action} to {notice.service} in the policy of {notice.target.id}"
        if not listed and notice.service != _ALARMS:
            found = f"{notice.target.id} has no policy that lets {notice.service} send to it"
            yield notice.sender.find(Code.NOTICE, notice.path, found, remedy, Level.WARNING)
        elif listed and not any(_admits(each, notice.service, action) for each in listed):
            found = f"the policy of {notice.target.id} does not let {notice.service} send to it"
            # Who sends in the name of the account may be let in as the account.
            level = Level.WARNING if notice.service == _ALARMS else Level.ERROR
            yield notice.sender.find(Code.NOTICE, notice.path, found, remedy, level)


def addresses(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse the URL of a queue, or the name of a topic, where the ARN belongs.

    CloudFormation User Guide, AWS::SQS::Queue and AWS::SNS::Topic, "Return values"; AWS::Budgets::
    Budget, NotificationWithSubscribers: a notice has one to eleven subscribers.
    """
    for sender, path, _, value in _sent(templates):
        target = templates.target(value, sender.file)
        said = str(value)
        is_url = target is not None and target.type == _QUEUE and "Ref" in said
        if target is not None and (is_url or any(word in said for word in _NAMES)):
            what = "URL" if is_url or "QueueUrl" in said else "name"
            found = f"the {what} of {target.id}, and the ARN belongs here: it is refused"
            arn = "Arn" if target.type == _QUEUE else "TopicArn"
            yield sender.find(Code.REFERENCE, path, found, f"write Fn::GetAtt [{target.id}, {arn}]")
    for budget in templates.resources("AWS::Budgets::Budget"):
        given = items(budget.properties.get("NotificationsWithSubscribers"))
        for index, each in enumerate(given or []):
            if items((mapping(each) or {}).get("Subscribers")) == []:
                found = "a notice to nobody: Budgets refuses it"
                place = ("NotificationsWithSubscribers", index, "Subscribers")
                yield budget.find(Code.NOTICE, place, found, "name a topic or an address")


def encrypted(templates: TemplateSet) -> Iterator[Finding]:
    """Require of an encrypted queue's or topic's key that the senders may use it.

    SNS Developer Guide and SQS Developer Guide, "Enable compatibility between event sources from
    AWS services and encrypted" topics and queues: the key that AWS manages serves none of them.
    """
    # Many rules send to one queue, and one sentence about it is enough.
    first = {(each.target, each.service): each for each in reversed([*_notices(templates)])}
    for notice in reversed([*first.values()]):
        target = notice.target
        key = target.properties.get("KmsMasterKeyId")
        own = templates.target(key, target.file)
        said = f"{notice.sender.id} sends here through {notice.service}, which may not use"
        if (written(key) or "").endswith(_MANAGED[target.type]):
            remedy = f"use a key of your own that allows {notice.service} kms:GenerateDataKey* "
            remedy += "and kms:Decrypt"
            found = f"{said} the key that AWS manages: nothing arrives"
            yield target.find(Code.NOTICE, ("KmsMasterKeyId",), found, remedy)
        elif own is not None and own.type == "AWS::KMS::Key":
            listed = statements(own.properties.get("KeyPolicy"))
            wanted = ("kms:generatedatakey", "kms:decrypt")
            if listed is not None and not all(
                any(_admits(each, notice.service, action) for each in listed) for action in wanted
            ):
                remedy = f"allow kms:GenerateDataKey* and kms:Decrypt to {notice.service} there"
                found = f"{said} {own.id}: nothing arrives"
                yield target.find(Code.NOTICE, ("KmsMasterKeyId",), found, remedy)


def _notices(templates: TemplateSet) -> Iterator[_Notice]:
    for sender, path, service, value in _sent(templates):
        target = templates.target(value, sender.file)
        if target is not None and target.type in _SENDING:
            yield _Notice(sender, path, service, target)


def _sent(templates: TemplateSet) -> Iterator[tuple[Resource, Path, str, Json]]:
    """Return who sends what where: the resource, the place in it, the service, the target."""
    for rule in templates.resources("AWS::Events::Rule"):
        for index, each in enumerate(items(rule.properties.get("Targets")) or []):
            target = mapping(each) or {}
            # With a role of its own a target needs no policy.
            if is_absent(target.get("RoleArn")):
                yield rule, ("Targets", index), "events.amazonaws.com", target.get("Arn")
    for budget in templates.resources("AWS::Budgets::Budget"):
        given = items(budget.properties.get("NotificationsWithSubscribers"))
        for index, each in enumerate(given or []):
            for who in items((mapping(each) or {}).get("Subscribers")) or []:
                path = ("NotificationsWithSubscribers", index)
                yield budget, path, "budgets.amazonaws.com", (mapping(who) or {}).get("Address")
    for alarm in templates.resources("AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm"):
        for key in _ACTIONS:
            for index, each in enumerate(items(alarm.properties.get(key)) or []):
                yield alarm, (key, index), _ALARMS, each
    yield from _forwarded(templates)


def _forwarded(templates: TemplateSet) -> Iterator[tuple[Resource, Path, str, Json]]:
    for link in templates.resources("AWS::SNS::Subscription"):
        yield link, ("Endpoint",), "sns.amazonaws.com", link.properties.get("Endpoint")
    for bucket in templates.resources("AWS::S3::Bucket"):
        told = mapping(bucket.properties.get("NotificationConfiguration")) or {}
        for key, name in (("QueueConfigurations", "Queue"), ("TopicConfigurations", "Topic")):
            for index, each in enumerate(items(told.get(key)) or []):
                path = ("NotificationConfiguration", key, index)
                yield bucket, path, "s3.amazonaws.com", (mapping(each) or {}).get(name)


def _policies_of(target: Resource, templates: TemplateSet) -> "list[dict[str, Json]] | None":
    """Return what the policies of a queue or topic say; None where one cannot be known."""
    found: list[dict[str, Json]] = []
    for kind, key in _POLICIES[target.type]:
        for policy in templates.resources(kind):
            value = policy.properties.get(key)
            named = templates.targets(value if isinstance(value, list) else [value], policy.file)
            if None in named:
                # A queue that is named in another way may be this one.
                return None
            if target in named:
                listed = statements(policy.properties.get("PolicyDocument"))
                if listed is None:
                    return None
                found += listed
    return found


def _admits(body: "dict[str, Json]", service: str, action: str) -> bool:
    principal = body.get("Principal")
    whom = mapping(principal)
    if body.get("Effect") != "Allow":
        return False
    given = [each.lower() for each in words(body.get("Action"))]
    does = not given or any(fnmatchcase(action.lower(), each) for each in given)
    if principal == "*" or whom is None or "*" in words(whom.get("AWS")):
        return does
    value = whom.get("Service")
    names = [written(each) for each in (value if isinstance(value, list) else [value])]
    plain = [name.replace(_SUFFIX, "amazonaws.com") if name else name for name in names]
    known = is_absent(value) or all(name is not None and "$" not in name for name in plain)
    return does and (service in plain or not known or text(value) == "*")
