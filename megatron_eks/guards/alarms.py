"""Guards of alarms: what tells of trouble asks for something that is measured, and is heard."""

import re
from collections.abc import Iterator

from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.codes import Rule
from megatron_eks.guards.statements import Need, listed, needs
from megatron_eks.guards.templates import Resource, Templates, constants, template_guard
from megatron_eks.guards.values import YES, Value, report

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
_ALARM = (
    ("ActionsEnabled", (YES, None), "it changes its state without a message"),
    ("ComparisonOperator", ("GreaterThanThreshold", "LessThanThreshold"), "it cannot be made"),
    ("AlarmName", (), "a mail does not say what it is about"),
    ("AlarmDescription", (), "a mail does not say what to do"),
)
_RULE = (("State", ("ENABLED", None), "it never matches"),)
_WORKSPACE = (
    ("AlertManagerDefinition", (), "its rules send nothing"),
    ("WorkspaceConfiguration RetentionPeriodInDays", (), "AWS decides how long metrics stay"),
    ("LoggingConfiguration LogGroupArn", (), "no log says why an alert was not sent"),
)
_TOPIC_POLICY = (("Topics 0", (), "it applies to no topic"),)
_SUBSCRIPTION = (("Protocol", ("email", "https", "sms", "sqs"), "the topic refuses it"),)
_BUDGET = (("Budget BudgetType", ("COST",), "it does not count cost"),)
_NOTIFICATION = (
    ("Notification ComparisonOperator", ("GREATER_THAN",), "it fires while costs are low"),
    ("Subscribers 0", (), "it has no recipient"),
)
_OURS = (("StringEquals", "aws:SourceAccount", "${AWS::AccountId}"),)
_ENCRYPTED_WAY = Need(
    _CODE,
    "messages may travel unencrypted",
    ("sns:Publish",),
    who="*",
    when=(("Bool", "aws:SecureTransport", "false"),),
    effect="Deny",
)
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
    yield from constants(templates.of("CloudWatch::Alarm"), _CODE, _ALARM)
    yield from constants(templates.of("Events::Rule"), _CODE, _RULE)
    yield from constants(templates.of("APS::Workspace"), _CODE, _WORKSPACE)
    yield from constants(templates.of("SNS::TopicPolicy"), _CODE, _TOPIC_POLICY)
    yield from constants(templates.of("SNS::Subscription"), _CODE, _SUBSCRIPTION)
    yield from constants(templates.of("Budgets::Budget"), _CODE, _BUDGET)
    for budget in templates.of("Budgets::Budget"):
        for each in budget["NotificationsWithSubscribers"]:
            yield from each.must_hold(_CODE, _NOTIFICATION)
    for alarm in templates.of("CloudWatch::Alarm"):
        yield from _reached(templates, alarm, alarm["AlarmActions"], [alarm["AlarmActions"]])
        yield from _asked(alarm["Metrics"])
    for rule in templates.of("Events::Rule"):
        targets = [each["Arn"] for each in rule["Targets"]]
        yield from _reached(templates, rule, rule["Targets"], targets)
        yield from _matched(rule)
    topics = templates.of("SNS::Topic")
    policies = [each["PolicyDocument"] for each in templates.of("SNS::TopicPolicy")]
    keys = [found for each in topics if (found := templates.target(each["KmsMasterKeyId"]))]
    told = [topics[0]["KmsMasterKeyId"]] if topics and not policies else []
    yield from report(
        _CODE, *((True, place, "no policy lets services publish", "add one") for place in told)
    )
    yield from needs(templates, policies, _ENCRYPTED_WAY) if topics else ()
    for kind, who in _TELLERS.items():
        if topics and templates.of(kind):
            why = f"messages of {who} are lost"
            when = () if kind == "Events::Rule" else _OURS
            publish = Need(_CODE, why, ("sns:Publish",), who=who, when=when)
            yield from needs(templates, policies, publish)
            use = ("kms:Decrypt", "kms:GenerateDataKey")
            for key in keys:
                yield from needs(templates, [key["KeyPolicy"]], Need(_CODE, why, use, who=who))


def _reached(
    templates: Templates, teller: Resource, place: Value, ways: list[Value]
) -> Iterator[Finding]:
    found = [target.type for way in ways for target in templates.targets(way)]
    # Elsewhere, a topic is named by its ARN.
    named = [each.text for way in ways for each in listed(way) if each.text.startswith("arn:")]
    if "AWS::SNS::Topic" not in found and not named:
        what = f"{teller.name} sends to no topic"
        yield place.finding(_CODE, what, "name the topic of the stack", Level.ERROR)


def _asked(queries: Value) -> Iterator[Finding]:
    """Report expressions that name no query, and alarms without one of them."""
    ids = {each["Id"].text for each in queries if each["MetricStat"]}
    shown = [each for each in queries if each["ReturnData"].raw is not False]
    rows = [(len(shown) != 1, queries, "one query must return data", "ReturnData: true for one")]
    for query in queries:
        named = set(re.findall(r"[a-z]\w*", query["Expression"].text))
        other = "use " + ", ".join(sorted(ids))
        rows.append((bool(named - ids), query["Expression"], "it names no query", other))
        empty = not query["Expression"] and not query["MetricStat"]
        rows.append((empty, query, "it queries nothing", "give it a MetricStat"))
        yield from _measured(query["MetricStat"]["Metric"])
    yield from report(_CODE, *rows)


def _matched(rule: Resource) -> Iterator[Finding]:
    """Report rules that match nothing, or whose message says nothing."""
    pattern, schedule = rule["EventPattern"], rule["ScheduleExpression"]
    kind, keys = _EVENTS.get("".join(pattern["source"].texts), ("", set()))
    detail = {key: each for key, each in pattern["detail"].items() if each[0]}
    ends = set(pattern["detail"]["build-status"].texts) <= _BUILD_ENDS
    once = schedule or pattern
    rows = [
        (not pattern and not _ONCE.fullmatch(schedule.text), once, "it never matches", "a minute"),
        (pattern and not kind, pattern["source"], "it is not sent", f"use {' or '.join(_EVENTS)}"),
        (
            kind and pattern["detail-type"].raw != [kind],
            pattern["detail-type"],
            "it never matches",
            f"use {kind}",
        ),
        (
            kind and (detail.keys() != keys or not ends),
            pattern["detail"],
            "it matches events of other clusters",
            f"use {' and '.join(sorted(keys))}",
        ),
    ]
    for target in rule["Targets"]:
        form = target["InputTransformer"]
        given = {key for key, _ in form["InputPathsMap"].items()}
        named = set(re.findall(r"<([\w-]+)>", form["InputTemplate"].text))
        says = bool(target["Input"]) if schedule else bool(given) and named == given
        rows.append((not says, target, "its message does not say what happened", "use every path"))
    yield from report(_CODE, *rows)


def _measured(metric: Value) -> Iterator[Finding]:
    """Report what nothing measures: such an alarm stays silent for ever."""
    if not metric:
        return
    names, dimension = _METRICS.get(metric["Namespace"].text, (set(), ""))
    name, by = metric["MetricName"], metric["Dimensions"]
    known = f"use {' or '.join(sorted(names))}"
    wrong = names and [each["Name"].text for each in by] != [dimension]
    yield from report(
        _CODE,
        (not names, metric["Namespace"], "no metric is there", f"use {' or '.join(_METRICS)}"),
        (names and name.text not in names, name, "no such metric", known),
        (wrong, by, "no such dimension", f"use {dimension}"),
    )
