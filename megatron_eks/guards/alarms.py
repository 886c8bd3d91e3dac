"""Guards of alarms: what tells of trouble is heard."""

import re
from difflib import get_close_matches
from functools import partial

from megatron_eks.guards.codes import Rule
from megatron_eks.guards.statements import Need, needs
from megatron_eks.guards.templates import Resource, Templates, constants, template_guard
from megatron_eks.guards.values import YES, Found, Row, report

_unheard, _need = partial(report, Rule.UNHEARD), partial(Need, Rule.UNHEARD)
# Who tells by which type, with its principal (Amazon SNS, "Access policies"; Amazon Managed Service
# for Prometheus, "Giving permission to send alert messages").
_TELLERS = {
    "CloudWatch::Alarm": "cloudwatch.amazonaws.com",
    "Events::Rule": "events.amazonaws.com",
    "APS::Workspace": "aps.amazonaws.com",
    "Budgets::Budget": "budgets.amazonaws.com",
}
_TOLD = "NotificationsWithSubscribers * "
_CONSTANTS: dict[str, tuple[Row, ...]] = {
    "CloudWatch::Alarm": (
        ("ActionsEnabled", (YES, None), "it changes its state without a message"),
        ("AlarmName", (), "a mail does not say what it is about"),
        ("AlarmDescription", (), "a mail does not say what to do"),
        ("ComparisonOperator", (), "CloudWatch makes no such alarm"),
    ),
    "APS::Workspace": (
        ("AlertManagerDefinition", (), "its rules send nothing"),
        ("WorkspaceConfiguration RetentionPeriodInDays", (), "AWS decides how long metrics stay"),
        ("LoggingConfiguration LogGroupArn", (), "no log says why an alert was not sent"),
    ),
    "SNS::TopicPolicy": (("Topics 0", (), "it applies to no topic"),),
    "SNS::Subscription": (("Protocol", ("email", "https", "sms", "sqs"), "the topic refuses it"),),
    "Budgets::Budget": (
        (f"{_TOLD}Subscribers 0", (), "nobody hears it"),
        (f"{_TOLD}Notification ComparisonOperator", ("GREATER_THAN",), "it tells of what is left"),
    ),
}
# What our alarms watch, by its dimension (FSx for Lustre and VPC, "Metrics and dimensions").
_OF_FSX = ("FreeDataStorageCapacity", "DataReadBytes", "DataWriteBytes")
_OF_NAT = ("NatGatewayId", ("ErrorPortAllocation",))
_METRICS = {"AWS/FSx": ("FileSystemId", _OF_FSX), "AWS/NATGateway": _OF_NAT}
_ENCRYPTED = (("Bool", "aws:SecureTransport", "false"),)
_USE = ("kms:Decrypt", "kms:GenerateDataKey")
_OURS = (("StringEquals", "aws:SourceAccount", "${AWS::AccountId}"),)
# What a service sends, and by what we choose among it (EventBridge, "Events from AWS services").
_EVENTS = {
    "aws.autoscaling": ("EC2 Instance Launch Unsuccessful", {"AutoScalingGroupName"}),
    "aws.codebuild": ("CodeBuild Build State Change", {"build-status", "project-name"}),
}
_BUILD_ENDS = {"FAILED", "FAULT", "STOPPED", "TIMED_OUT"}
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|(?i:^\s*select.*)")  # or a query in SQL
_ONCE = re.compile(r"cron\(\d+ \d+ \d+ \d+ \? \d{4}\)")


@template_guard
def heard(templates: Templates) -> Found:
    """Alarms and rules lead to a topic that takes them, encrypted with a key that they may use."""
    for kind, rows in _CONSTANTS.items():
        yield from constants(templates.of(kind), Rule.UNHEARD, *rows)
    for teller in templates.of("CloudWatch::Alarm", "Events::Rule"):
        ways = [teller["AlarmActions"], *(each["Arn"] for each in teller["Targets"])]
        # Elsewhere, a topic is named by its ARN.
        named = any(each.text.startswith("arn:") for way in ways for each in way.listed)
        lost = not named and "AWS::SNS::Topic" not in [e.type for e in templates.targets(*ways)]
        found = f"{teller.name} sends to no topic"
        yield from _unheard(lost, ways[-1], found, "name the topic of the stack")
        yield from _matched(teller) if "Events" in teller.type else _watched(teller)
    policies = [each["PolicyDocument"] for each in templates.of("SNS::TopicPolicy")]
    keys = [each["KmsMasterKeyId"] for each in templates.of("SNS::Topic")]
    for key in keys:
        yield from _unheard(not policies, key, "no policy lets services publish", "add one")
        found = "AWS's own key, which alarms may not use: their messages are lost"
        yield from _unheard("alias/aws/" in key.text, key, found, "name a key of the stack")
    why, publish = "messages may travel unencrypted", ("sns:Publish",)
    wanted = [_need(why, publish, who="*", when=_ENCRYPTED, effect="Deny")]
    for kind, who in _TELLERS.items():
        if keys and templates.of(kind):
            why, when = f"messages of {who} are lost", () if kind == "Events::Rule" else _OURS
            wanted.append(_need(why, publish, who=who, when=when))
            for own in templates.targets(*keys):
                yield from needs(templates, [own["KeyPolicy"]], _need(why, _USE, who=who))
    yield from needs(templates, policies, *wanted) if keys else ()


def _watched(alarm: Resource) -> Found:
    """Report a metric that nothing sends, or an expression about another one."""
    queries = [*alarm["Metrics"]]
    for metric in [alarm.properties, *(each["MetricStat"]["Metric"] for each in queries)]:
        name, given = metric["MetricName"], [each["Name"].text for each in metric["Dimensions"]]
        dimension, names = _METRICS.get(metric["Namespace"].text, ("", ()))
        meant = get_close_matches(name.text, names, 1, 0.85)
        found = f"{name.text!r} is hardly a metric of {metric['Namespace'].text}: it never fires"
        lost = meant and name.text not in meant
        yield from _unheard(lost, name, found, f"use {' '.join(meant)}", warns=True)
        elsewhere = dimension and dimension not in given
        found = "a metric of nothing: the alarm has no data"
        yield from _unheard(elsewhere, metric["Dimensions"], found, f"name a {dimension}")
    ids = {each["Id"].text for each in queries}
    for formula in (each["Expression"] for each in queries):
        other = {*re.findall(r"\b[a-z]\w*", _QUOTED.sub("", formula.text))} - ids
        found, remedy = f"no metric has the Id {', '.join(sorted(other))}", "correct it, or the Id"
        yield from _unheard(other, formula, found, remedy)


def _matched(rule: Resource) -> Found:
    """Report a rule that matches nothing, matches other clusters, or whose message says nothing."""
    pattern, schedule = rule["EventPattern"], rule["ScheduleExpression"]
    kind, keys = _EVENTS.get("".join(pattern["source"].texts), ("", set()))
    detail = pattern["detail"]
    right = {key for key, each in detail.items() if each[0]} == keys
    right = right and set(detail["build-status"].texts) <= _BUILD_ENDS
    known, of, chosen = (f"use {' or '.join(sorted(e))}" for e in (_EVENTS, {kind}, keys))
    once, named = pattern or _ONCE.fullmatch(schedule.text), pattern["detail-type"].raw == [kind]
    yield from _unheard(not once, schedule or pattern, "it never matches", "name a minute, once")
    yield from _unheard(pattern and not kind, pattern["source"], "it is not sent", known)
    yield from _unheard(kind and not named, pattern, "it never matches", of)
    yield from _unheard(kind and not right, detail, "it matches events of other clusters", chosen)
    for target in rule["Targets"]:
        form, found = target["InputTransformer"], "its message does not say what happened"
        given = {key for key, _ in form["InputPathsMap"].items()}
        told = given and given == set(re.findall(r"<([\w-]+)>", form["InputTemplate"].text))
        silent = not (target["Input"] if schedule else told)
        yield from _unheard(silent, target, found, "use every path")
