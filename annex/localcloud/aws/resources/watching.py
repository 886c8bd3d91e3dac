"""Metrics, alarms, topics, rules on events, and budgets."""

from functools import partial
from typing import ClassVar

from megatron_eks.localcloud.aws.resources.handler import (
    Context,
    Handler,
    Setting,
    call,
    last,
    untagged,
)
from megatron_eks.localcloud.aws.values import ACCOUNT, Object, Value


def _attribute(name: str, value: Value) -> Object:
    return {"AttributeName": name, "AttributeValue": value}


class Topic(Handler):
    """A topic; its physical id is its ARN."""

    kind = "AWS::SNS::Topic"
    service = "sns"
    creates = ("CreateTopic", "TopicArn")
    identity = ("TopicName",)
    made_up = 256
    renamed: ClassVar = {"TopicName": "Name"}
    tagged = ("ResourceArn", "")
    deletes = ("DeleteTopic", "TopicArn")
    owner = "TopicArn"
    settings: ClassVar = {
        "KmsMasterKeyId": Setting("SetTopicAttributes", form=partial(_attribute, "KmsMasterKeyId"))
    }


class TopicPolicy(Handler):
    """Who may publish; its physical id is the topic's ARN."""

    kind = "AWS::SNS::TopicPolicy"
    anew = True

    def create(self, context: Context, properties: Object) -> str:
        """Set the policy of all topics."""
        policy = _attribute("Policy", properties["PolicyDocument"])
        for topic in properties["Topics"]:
            call(context, "sns", "SetTopicAttributes", policy, TopicArn=topic)
        return str(properties["Topics"][0])

    def delete(self, context: Context, physical_id: str, properties: Object) -> None:
        """Leave it to the topic, which goes with it."""


class Subscription(Handler):
    """Somebody who is told; its physical id is its ARN."""

    kind = "AWS::SNS::Subscription"
    service = "sns"
    creates = ("Subscribe", "SubscriptionArn")
    deletes = ("Unsubscribe", "SubscriptionArn")


class Rule(Handler):
    """A rule on events; its physical id is its name."""

    kind = "AWS::Events::Rule"
    service = "events"
    creates = ("PutRule", "")
    identity = ("Name",)
    made_up = 64
    deletes = ("DeleteRule", "Name")

    def settle(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Set what is told, and whom."""
        if old:
            call(context, "events", "PutRule", {**untagged(new), "Name": physical_id})
        self._take_targets(context, physical_id)
        call(context, "events", "PutTargets", {"Targets": new["Targets"]}, Rule=physical_id)

    def delete(self, context: Context, physical_id: str, properties: Object) -> None:
        """Remove its targets first, as EventBridge asks."""
        self._take_targets(context, physical_id)
        super().delete(context, physical_id, properties)

    @staticmethod
    def _take_targets(context: Context, name: str) -> None:
        events = context.clients("events")
        present = [each["Id"] for each in events.list_targets_by_rule(Rule=name)["Targets"]]
        if present:
            events.remove_targets(Rule=name, Ids=present)


class Alarm(Handler):
    """An alarm; its physical id is its name."""

    kind = "AWS::CloudWatch::Alarm"
    service = "cloudwatch"
    creates = ("PutMetricAlarm", "")
    identity = ("AlarmName",)
    made_up = 255
    updates = ("PutMetricAlarm", "AlarmName")
    deletes = ("DeleteAlarms", "AlarmNames")


class Budget(Handler):
    """A budget; its physical id is its name."""

    kind = "AWS::Budgets::Budget"

    def create(self, context: Context, properties: Object) -> str:
        """Make the budget, and what tells of it."""
        call(context, "budgets", "CreateBudget", properties, AccountId=ACCOUNT)
        return str(properties["Budget"]["BudgetName"])

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Make it anew: the service has an operation for each part of it."""
        self.delete(context, physical_id, old)
        self.create(context, new)

    def delete(self, context: Context, physical_id: str, properties: Object) -> None:
        """Remove the budget."""
        del properties
        context.clients("budgets").delete_budget(AccountId=ACCOUNT, BudgetName=physical_id)


class Workspace(Handler):
    """A workspace of managed Prometheus; its physical id is its ARN."""

    kind = "AWS::APS::Workspace"
    service = "amp"
    creates = ("CreateWorkspace", "arn")
    arn = True
    tagged = ("resourceArn", "")
    deletes = ("DeleteWorkspace", "workspaceId")
    describes = ("DescribeWorkspace", "workspaceId")
    answers: ClassVar = {"Arn": "", "PrometheusEndpoint": "workspace.prometheusEndpoint"}

    def settle(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Set how long it keeps metrics, where its logs go, and whom it tells."""
        logging = "LoggingConfiguration"
        settings = {
            "AlertManagerDefinition": "PutAlertManagerDefinition",
            "WorkspaceConfiguration": "UpdateWorkspaceConfiguration",
            logging: f"{'Update' if logging in old else 'Create'}{logging}",
        }
        for name, operation in settings.items():
            value = new.get(name)
            if value is not None and value != old.get(name):
                # One of them is a text.
                given = value if isinstance(value, dict) else {"Data": value.encode()}
                call(context, "amp", operation, given, workspaceId=last(physical_id))


class RuleGroups(Handler):
    """Rules of a workspace; its physical id is its ARN."""

    kind = "AWS::APS::RuleGroupsNamespace"

    def create(self, context: Context, properties: Object) -> str:
        """Make the rules."""
        answer = self._write(context, "CreateRuleGroupsNamespace", properties)
        return str(answer["arn"])

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Write them anew."""
        del physical_id, old
        self._write(context, "PutRuleGroupsNamespace", new)

    def delete(self, context: Context, physical_id: str, properties: Object) -> None:
        """Remove the rules."""
        del physical_id
        context.clients("amp").delete_rule_groups_namespace(
            workspaceId=last(properties["Workspace"]), name=properties["Name"]
        )

    @staticmethod
    def _write(context: Context, operation: str, properties: Object) -> Object:
        workspace = last(properties["Workspace"])
        given = {**untagged(properties), "Data": properties["Data"].encode()}
        return call(context, "amp", operation, given, workspaceId=workspace)


class Scraper(Handler):
    """What collects metrics of a cluster; its physical id is its ARN."""

    kind = "AWS::APS::Scraper"
    service = "amp"
    creates = ("CreateScraper", "arn")
    arn = True
    deletes = ("DeleteScraper", "scraperId")


HANDLERS: tuple[Handler, ...] = (
    Topic(),
    TopicPolicy(),
    Subscription(),
    Rule(),
    Alarm(),
    Budget(),
    Workspace(),
    RuleGroups(),
    Scraper(),
)
