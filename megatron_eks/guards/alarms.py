"""Guards of alarms: what tells of trouble asks for something that is measured, and is heard."""

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
_ALARM = (("ActionsEnabled", (YES, None), "it changes its state and tells nobody"),)
_RULE = (("State", ("ENABLED", None), "it never matches"),)


@template_guard
def heard(templates: Templates) -> Iterator[Finding]:
    """Alarms and rules lead to a topic that takes them, encrypted with a key that they may use."""
    yield from constants(templates.of("CloudWatch::Alarm"), _CODE, _ALARM)
    yield from constants(templates.of("Events::Rule"), _CODE, _RULE)
    for alarm in templates.of("CloudWatch::Alarm"):
        yield from _reached(templates, alarm, alarm["AlarmActions"], [alarm["AlarmActions"]])
        for query in alarm["Metrics"]:
            yield from _measured(query["MetricStat"]["Metric"])
    for rule in templates.of("Events::Rule"):
        targets = [each["Arn"] for each in rule["Targets"]]
        yield from _reached(templates, rule, rule["Targets"], targets)
    topics = templates.of("SNS::Topic")
    policies = [each["PolicyDocument"] for each in templates.of("SNS::TopicPolicy")]
    keys = [found for each in topics if (found := templates.target(each["KmsMasterKeyId"]))]
    for kind, who in _TELLERS.items():
        if topics and templates.of(kind):
            why = f"what {who} tells is lost"
            yield from needs(templates, policies, Need(_CODE, why, ("sns:Publish",), who=who))
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
        what = f"{teller.name} tells nobody"
        yield place.finding(_CODE, what, "name the topic of the stack", Level.ERROR)


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
        (not names, metric["Namespace"], "nothing measures there", f"use {' or '.join(_METRICS)}"),
        (names and name.text not in names, name, "nothing measures it", known),
        (wrong, by, "nothing is measured by it", f"use {dimension}"),
    )
