"""Guards of alarms: what tells of trouble asks for something that is measured, and is heard."""

import re
from collections.abc import Iterator

from megatron_eks.config.errors import Finding
from megatron_eks.guards.codes import Rule
from megatron_eks.guards.statements import Need, listed, needs
from megatron_eks.guards.templates import Resource, Templates, constants, template_guard
from megatron_eks.guards.values import YES, Row, Value, report

_CODE = Rule.UNHEARD
# Who tells by which type, with its principal (Amazon SNS, "Access policies"; Amazon Managed Service
# for Prometheus, "Giving permission to send alert messages").
_TELLERS = {
    "CloudWatch::Alarm": "cloudwatch.amazonaws.com",
    "Events::Rule": "events.amazonaws.com",
    "APS::Workspace": "aps.amazonaws.com",
    "Budgets::Budget": "budgets.amazonaws.com",
}
# Namespaces' metrics and dimensions: their user guides, "Monitoring with CloudWatch".
_METRICS = {
    "AWS/FSx": ({"FreeDataStorageCapacity", "DataReadBytes", "DataWriteBytes"}, "FileSystemId"),
    "AWS/NATGateway": ({"ErrorPortAllocation"}, "NatGatewayId"),
}
_CONSTANTS: dict[str, tuple[Row, ...]] = {
    "CloudWatch::Alarm": (
        ("ActionsEnabled", (YES, None), "it changes its state without a message"),
        ("ComparisonOperator", ("GreaterThanThreshold", "LessThanThreshold"), "it cannot be made"),
        ("AlarmName", (), "a mail does not say what it is about"),
        ("AlarmDescription", (), "a mail does not say what to do"),
    ),
    "Events::Rule": (("State", ("ENABLED", None), "it never matches"),),
    "APS::Workspace": (
        ("AlertManagerDefinition", (), "its rules send nothing"),
        ("WorkspaceConfiguration RetentionPeriodInDays", (), "AWS decides how long metrics stay"),
        ("LoggingConfiguration LogGroupArn", (), "no log says why an alert was not sent"),
    ),
    "SNS::TopicPolicy": (("Topics 0", (), "it applies to no topic"),),
    "SNS::Subscription": (("Protocol", ("email", "https", "sms", "sqs"), "the topic refuses it"),),
    "Budgets::Budget": (("Budget BudgetType", ("COST",), "it does not count cost"),),
}
_NOTIFICATION: tuple[Row, ...] = (
    ("Notification ComparisonOperator", ("GREATER_THAN",), "it fires while costs are low"),
    ("Subscribers 0", (), "it has no recipient"),
)
_ENCRYPTED = (("Bool", "aws:SecureTransport", "false"),)
_OURS = (("StringEquals", "aws:SourceAccount", "${AWS::AccountId}"),)
# What a service sends, and by what we choose among it (EventBridge, "Events from AWS services").
_EVENTS = {
    "aws.autoscaling": ("EC2 Instance Launch Unsuccessful", {"AutoScalingGroupName"}),
    "aws.codebuild": ("CodeBuild Build State Change", {"build-status", "project-name"}),
}
_BUILD_ENDS = {"FAILED", "FAULT", "STOPPED", "TIMED_OUT"}
_ONCE = re.compile(r"cron\(\d+ \d+ \d+ \d+ \? \d{4}\)")


@template_guard
def heard(templates: Templates) -> Iterator[Finding]:
    """Alarms and rules lead to a topic that takes them, encrypted with a key that they may use."""
    for kind, rows in _CONSTANTS.items():
        yield from constants(templates.of(kind), _CODE, rows)
    for budget in templates.of("Budgets::Budget"):
        for each in budget["NotificationsWithSubscribers"]:
            yield from each.must_hold(_CODE, _NOTIFICATION)
    for teller in templates.of("CloudWatch::Alarm", "Events::Rule"):
        ways = [teller["AlarmActions"], *(each["Arn"] for each in teller["Targets"])]
        found = {each.type for way in ways for each in templates.targets(way)}
        # Elsewhere, a topic is named by its ARN.
        named = [each for way in ways for each in listed(way) if each.text.startswith("arn:")]
        lost = "AWS::SNS::Topic" not in found and not named
        what, remedy = f"{teller.name} sends to no topic", "name the topic of the stack"
        yield from report(_CODE, (lost, ways[-1], what, remedy))
        yield from _matched(teller) if "Events" in teller.type else _asked(teller["Metrics"])
    topics = templates.of("SNS::Topic")
    policies = [each["PolicyDocument"] for each in templates.of("SNS::TopicPolicy")]
    for topic in topics:
        found_none = "no policy lets services publish"
        yield from report(_CODE, (not policies, topic["KmsMasterKeyId"], found_none, "add one"))
    keys = [key for each in topics if (key := templates.target(each["KmsMasterKeyId"]))]
    why = "messages may travel unencrypted"
    way = Need(_CODE, why, ("sns:Publish",), who="*", when=_ENCRYPTED, effect="Deny")
    yield from needs(templates, policies, way) if topics else ()
    for kind, who in _TELLERS.items():
        if topics and templates.of(kind):
            why = f"messages of {who} are lost"
            when = () if kind == "Events::Rule" else _OURS
            publish = Need(_CODE, why, ("sns:Publish",), who=who, when=when)
            yield from needs(templates, policies, publish)
            use = ("kms:Decrypt", "kms:GenerateDataKey")
            for key in keys:
                yield from needs(templates, [key["KeyPolicy"]], Need(_CODE, why, use, who=who))


def _matched(rule: Resource) -> Iterator[Finding]:
    """Report a rule that matches nothing, matches other clusters, or whose message says nothing."""
    pattern, schedule = rule["EventPattern"], rule["ScheduleExpression"]
    kind, keys = _EVENTS.get("".join(pattern["source"].texts), ("", set()))
    detail = pattern["detail"]
    right = {key for key, each in detail.items() if each[0]} == keys
    right = right and set(detail["build-status"].texts) <= _BUILD_ENDS
    known, of, chosen = (f"use {' or '.join(sorted(e))}" for e in (_EVENTS, {kind}, keys))
    once = pattern or _ONCE.fullmatch(schedule.text)
    rows = [
        (not once, schedule or pattern, "it never matches", "name a minute, once"),
        (pattern and not kind, pattern["source"], "it is not sent", known),
        (kind and pattern["detail-type"].raw != [kind], pattern, "it never matches", of),
        (kind and not right, detail, "it matches events of other clusters", chosen),
    ]
    for target in rule["Targets"]:
        form = target["InputTransformer"]
        given = {key for key, _ in form["InputPathsMap"].items()}
        named = set(re.findall(r"<([\w-]+)>", form["InputTemplate"].text))
        says = bool(target["Input"]) if schedule else bool(given) and named == given
        rows.append((not says, target, "its message does not say what happened", "use every path"))
    yield from report(_CODE, *rows)


def _asked(queries: Value) -> Iterator[Finding]:
    """Report expressions that name no query, and alarms that have not one answer."""
    ids = {each["Id"].text for each in queries if each["MetricStat"]}
    shown = [each for each in queries if each["ReturnData"].raw is not False]
    rows = [(len(shown) != 1, queries, "one query must return data", "ReturnData: true for one")]
    for query in queries:
        words = query["Expression"]
        other = f"use {', '.join(sorted(ids))}"
        lost = set(re.findall(r"[a-z]\w*", words.text)) - ids
        rows.append((bool(lost), words, "it names no query", other))
        empty = not words and not query["MetricStat"]
        rows.append((empty, query, "it queries nothing", "give it a MetricStat"))
        yield from _measured(query["MetricStat"]["Metric"])
    yield from report(_CODE, *rows)


def _measured(metric: Value) -> Iterator[Finding]:
    """Report what nothing measures: such an alarm stays silent for ever."""
    names, dimension = _METRICS.get(metric["Namespace"].text, (set(), ""))
    name, by = metric["MetricName"], metric["Dimensions"]
    known = f"use {' or '.join(sorted(names))}"
    wrong = names and [each["Name"].text for each in by] != [dimension]
    yield from report(
        _CODE,
        (metric and not names, metric["Namespace"], "no metric is there", known),
        (names and name.text not in names, name, "no such metric", known),
        (wrong, by, "no such dimension", f"use {dimension}"),
    )
