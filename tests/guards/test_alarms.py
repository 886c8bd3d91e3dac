"""Alarms, rules on events, and who may write to their topic."""

import pytest

from tests.guards.slips import ABSENT, in_stack, in_template

WATCHED = "p5-capacity-block"
POLICY = "PolicyDocument Statement"
NOTICE = "NotificationsWithSubscribers 0 Notification"
METRIC = "Metrics 1 MetricStat Metric"


@pytest.mark.parametrize(
    ("resource", "path", "value"),
    [
        ("CloudWatch::Alarm", "AlarmActions", ABSENT),
        ("CloudWatch::Alarm", "AlarmActions", [{"Ref": "Key"}]),
        ("CloudWatch::Alarm", "ActionsEnabled", False),
        ("CloudWatch::Alarm", "ComparisonOperator", ABSENT),
        ("CloudWatch::Alarm", f"{METRIC} MetricName", "FreeStorageCapacity"),
        ("CloudWatch::Alarm", f"{METRIC} Dimensions 0 Name", "FileSystem"),
        ("CloudWatch::Alarm", "Metrics 1 Id", "least"),
        ("Events::Rule Build", "Targets 0 Arn", {"Ref": "Workspace"}),
        ("Events::Rule Build", "EventPattern source", ["aws.codebuilds"]),
        ("Events::Rule Build", "EventPattern detail-type", ["CodeBuild Build Phase Change"]),
        ("Events::Rule Build", "EventPattern detail project-name", ABSENT),
        ("Events::Rule Build", "EventPattern detail build-status", ["FAILURE"]),
        ("Events::Rule Build", "Targets 0 InputTransformer InputPathsMap", {"name": "$.detail.x"}),
        ("Events::Rule BlockEnd", "ScheduleExpression", "cron(30 10 15 2 * 2027)"),
        ("Events::Rule BlockEnd", "Targets 0 Input", ABSENT),
        ("APS::Workspace", "AlertManagerDefinition", ABSENT),
        ("Budgets::Budget", "NotificationsWithSubscribers 0 Subscribers", []),
        ("Budgets::Budget", f"{NOTICE} ComparisonOperator", "LESS_THAN"),
        ("SNS::Subscription", "Protocol", "emial"),
        ("SNS::Topic", "KmsMasterKeyId", "alias/aws/sns"),
        ("SNS::TopicPolicy", f"{POLICY} 0 Principal Service", "event.amazonaws.com"),
        ("SNS::TopicPolicy", f"{POLICY} 1 Action", ["sns:GetTopicAttributes"]),
        ("SNS::TopicPolicy", f"{POLICY} 1 Effect", "Deny"),
        ("SNS::TopicPolicy", f"{POLICY} 1 Condition", ABSENT),
        ("SNS::TopicPolicy", f"{POLICY} 2 Condition Bool aws:SecureTransport", "true"),
        ("SNS::TopicPolicy", "Type", "AWS::CloudFormation::WaitConditionHandle"),
    ],
)
def test_what_nobody_would_hear(resource, path, value):
    """Each is found under one code."""
    assert "UNHEARD" in in_template(resource, path, value, WATCHED)


def test_a_key_that_the_services_may_not_use():
    """What they send to an encrypted topic is lost."""

    def change(resources):
        resources["Key"]["Properties"]["KeyPolicy"]["Statement"].pop()
        return resources

    assert "UNHEARD" in in_stack("Observability", change, WATCHED)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{METRIC} MetricName", "DiskReadBytes"),
        (f"{METRIC} Namespace", "OurOwn"),
        ("Metrics 0 Expression", "SELECT MAX(errors) FROM OurOwn"),
        ("Metrics 0 Expression", "FILL(fullest, 0) + SUM(SEARCH('{AWS/FSx} disk', 'Sum', 60))"),
    ],
)
def test_other_metrics_that_work(path, value):
    """Other metrics of a file system, one's own, and functions of them."""
    assert in_template("CloudWatch::Alarm", path, value, WATCHED) == set()
