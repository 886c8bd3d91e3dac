"""The Observability stack: metrics of the GPUs, alarms, who hears of them, and a budget."""

import base64
import math
from collections.abc import Mapping, Sequence
from textwrap import indent

import aws_cdk as cdk
import yaml
from aws_cdk import aws_aps as aps
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_events as events
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_sns as sns
from constructs import Construct

from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.lustre import LustrePlan
from megatron_eks.plan.cluster.observability import (
    BlockWarning,
    ObservabilityPlan,
    rule_groups,
    scrape_configuration,
)
from megatron_eks.stacks.base import BaseStack, Place, encryption_key, log_group
from megatron_eks.stacks.policies import account, document, partition, same_account, statement

_GIB, _MIB = 2**30, 2**20
_FULL_PERCENT, _BUSY_PERCENT = 10, 90
_SCRAPER_ZONES = 2
_EVENTS = "events.amazonaws.com"
_OTHER_PUBLISHERS = ["cloudwatch.amazonaws.com", "budgets.amazonaws.com", "aps.amazonaws.com"]


class ObservabilityStack(BaseStack):
    """What tells people of trouble, also while nobody looks."""

    def __init__(
        self,
        scope: Construct,
        plan: ClusterPlan,
        wish: ObservabilityPlan,
        *,
        place: Place,
        security_groups: Sequence[str],
        file_systems: Sequence[fsx.CfnFileSystem],
        nat_gateways: Mapping[str, str],
    ) -> None:
        super().__init__(scope, plan, "Observability", "Metrics, alarms and budget")
        self._plan, self._wish, self._place = plan, wish, place
        self._security_groups = list(security_groups)
        log_name = f"/aws/vendedlogs/prometheus/{plan.name}"
        self._key = encryption_key(
            self,
            "Key",
            region=plan.region,
            description=f"Metrics and alarms of {plan.name}",
            removal=cdk.RemovalPolicy.DESTROY,
            log_groups=log_name,
            publishers=[_EVENTS, *_OTHER_PUBLISHERS],
        )
        self._topic = self._alarm_topic()
        self._metrics(log_name)
        for file_system, lustre in zip(file_systems, plan.storage.file_systems, strict=True):
            self._lustre(file_system, lustre)
        for zone, gateway in nat_gateways.items():
            self._nat(zone, gateway)
        self._node_launches()
        self._builds()
        for warning in wish.block_warnings:
            self._block_end(warning)
        if wish.monthly_budget_usd is not None:
            self._budget(wish.monthly_budget_usd)

    def _alarm_topic(self) -> str:
        name = f"{self._plan.name}-alarms"
        topic = sns.CfnTopic(self, "Topic", topic_name=name, kms_master_key_id=self._key)
        publish = [
            # EventBridge takes no condition here (its User Guide, "Troubleshooting").
            statement(["sns:Publish"], [topic.ref], principal={"Service": _EVENTS}),
            statement(
                ["sns:Publish", "sns:GetTopicAttributes"],
                [topic.ref],
                principal={"Service": _OTHER_PUBLISHERS},
                condition=same_account(),
            ),
            statement(
                ["sns:Publish"],
                [topic.ref],
                effect="Deny",
                principal={"AWS": "*"},
                condition={"Bool": {"aws:SecureTransport": "false"}},
            ),
        ]
        sns.CfnTopicPolicy(
            self, "TopicPolicy", topics=[topic.ref], policy_document=document(publish)
        )
        if self._wish.alarm_email is not None:
            sns.CfnSubscription(
                self,
                "Email",
                topic_arn=topic.ref,
                protocol="email",
                endpoint=self._wish.alarm_email,
            )
        cdk.CfnOutput(self, "AlarmTopicArn", value=topic.ref)
        return topic.ref

    def _metrics(self, log_name: str) -> None:
        """Keep what the exporters of GPU nodes measure, and judge it."""
        plan = self._plan
        logs = log_group(self, "Logs", name=log_name, key=self._key)
        workspace = aps.CfnWorkspace(
            self,
            "Workspace",
            alias=plan.name,
            kms_key_arn=self._key,
            alert_manager_definition=f"alertmanager_config: |\n{indent(self._routes(), '  ')}",
            logging_configuration=aps.CfnWorkspace.LoggingConfigurationProperty(
                log_group_arn=logs.attr_arn
            ),
            workspace_configuration=aps.CfnWorkspace.WorkspaceConfigurationProperty(
                retention_period_in_days=self._wish.retention_days
            ),
        )
        aps.CfnRuleGroupsNamespace(
            self,
            "Rules",
            name="megatron-eks",
            workspace=workspace.attr_arn,
            data=yaml.safe_dump(rule_groups(), sort_keys=False),
        )
        written = yaml.safe_dump(scrape_configuration(), sort_keys=False)
        cluster = f"arn:{partition()}:eks:{plan.region}:{account()}:cluster/{plan.eks_name}"
        # Its rights in the cluster are an access entry that the service makes itself.
        aps.CfnScraper(
            self,
            "Scraper",
            alias=plan.name,
            source=aps.CfnScraper.SourceProperty(
                eks_configuration=aps.CfnScraper.EksConfigurationProperty(
                    cluster_arn=cluster,
                    subnet_ids=list(self._place.private_subnets.values())[:_SCRAPER_ZONES],
                    security_group_ids=self._security_groups,
                )
            ),
            destination=aps.CfnScraper.DestinationProperty(
                amp_configuration=aps.CfnScraper.AmpConfigurationProperty(
                    workspace_arn=workspace.attr_arn
                )
            ),
            scrape_configuration=aps.CfnScraper.ScrapeConfigurationProperty(
                configuration_blob=base64.b64encode(written.encode()).decode()
            ),
        )
        cdk.CfnOutput(self, "PrometheusUrl", value=workspace.attr_prometheus_endpoint)

    def _routes(self) -> str:
        """Send all alerts to the topic (Amazon Managed Prometheus, "Alert manager")."""
        receiver = {
            "name": "topic",
            "sns_configs": [{"topic_arn": self._topic, "sigv4": {"region": self._plan.region}}],
        }
        route = {
            "receiver": "topic",
            "group_by": ["alertname", "severity"],
            "group_wait": "30s",
            "group_interval": "5m",
            "repeat_interval": "12h",
        }
        # No line is broken: the topic stands for a reference that CloudFormation puts in.
        text: str = yaml.safe_dump({"route": route, "receivers": [receiver]}, width=math.inf)
        return text

    def _lustre(self, file_system: fsx.CfnFileSystem, lustre: LustrePlan) -> None:
        def metric(
            name: str, key: str, statistic: str
        ) -> cloudwatch.CfnAlarm.MetricDataQueryProperty:
            return _query(key, "AWS/FSx", name, {"FileSystemId": file_system.ref}, statistic)

        suffix = lustre.output_suffix
        capacity = lustre.capacity_gib * _GIB
        # Writes fail once one target is full, while the sum still looks fine.
        self._alarm(
            f"FileSystemFull{suffix}",
            f"the fullest part of the file system in {lustre.zone} has {_FULL_PERCENT} % left: "
            "meks ckpt ls, then meks ckpt prune",
            [
                metric("FreeDataStorageCapacity", "fullest", "Minimum"),
                metric("FreeDataStorageCapacity", "targets", "SampleCount"),
            ],
            f"100 * fullest * targets / {capacity}",
            below=_FULL_PERCENT,
            minutes=5,
        )
        rate = lustre.throughput_mbps_per_tib * lustre.capacity_gib / 1024 * _MIB
        self._alarm(
            f"FileSystemBusy{suffix}",
            f"the file system in {lustre.zone} has been at its throughput for half an hour: raise "
            "storage.lustre.throughput_mbps_per_tib, or save less often",
            [metric("DataReadBytes", "read", "Sum"), metric("DataWriteBytes", "written", "Sum")],
            f"100 * (read + written) / 60 / {rate:.0f}",
            above=_BUSY_PERCENT,
            minutes=30,
        )

    def _nat(self, zone: str, gateway: str) -> None:
        """See connections that fail because a NAT gateway has no port left for them."""
        ports = _query(
            "errors",
            "AWS/NATGateway",
            "ErrorPortAllocation",
            {"NatGatewayId": gateway},
            "Sum",
            alone=True,
        )
        self._alarm(
            f"NatPorts-{zone}",
            f"the NAT gateway in {zone} has no free port: downloads fail; set "
            "network.nat_gateways: per_zone, or fetch once and share",
            [ports],
            None,
            above=0,
            minutes=5,
        )

    def _alarm(
        self,
        name: str,
        description: str,
        metrics: Sequence[cloudwatch.CfnAlarm.MetricDataQueryProperty],
        expression: str | None,
        *,
        minutes: int,
        above: float | None = None,
        below: float | None = None,
    ) -> None:
        comparison = "GreaterThanThreshold" if below is None else "LessThanThreshold"
        result = [
            cloudwatch.CfnAlarm.MetricDataQueryProperty(
                id="result", expression=each, return_data=True
            )
            for each in ([expression] if expression else [])
        ]
        cloudwatch.CfnAlarm(
            self,
            name,
            alarm_name=f"{self._plan.name}-{name}",
            alarm_description=description,
            metrics=[*result, *metrics],
            comparison_operator=comparison,
            threshold=above if below is None else below,
            evaluation_periods=minutes,
            datapoints_to_alarm=minutes,
            treat_missing_data="notBreaching",
            alarm_actions=[self._topic],
            ok_actions=[self._topic],
        )

    def _node_launches(self) -> None:
        """Tell of nodes that EC2 could not start: their node group waits and says nothing."""
        names = [{"prefix": f"eks-{pool.name}-"} for pool in self._plan.pools]
        self._on(
            "NodeLaunch",
            "no GPU node: <group>: <why>; meks preflight aws",
            {"group": "$.detail.AutoScalingGroupName", "why": "$.detail.StatusMessage"},
            source="aws.autoscaling",
            kinds=["EC2 Instance Launch Unsuccessful"],
            detail={"AutoScalingGroupName": names},
        )

    def _builds(self) -> None:
        projects = [f"{self._plan.name}-{image.name}" for image in self._plan.images]
        self._on(
            "Build",
            "the build of <project> failed; meks build says why",
            {"project": "$.detail.project-name"},
            source="aws.codebuild",
            kinds=["CodeBuild Build State Change"],
            detail={"build-status": ["FAILED", "FAULT", "TIMED_OUT"], "project-name": projects},
        )

    def _on(
        self,
        name: str,
        template: str,
        paths: Mapping[str, str],
        *,
        source: str,
        kinds: Sequence[str],
        detail: Mapping[str, object],
    ) -> None:
        transformer = events.CfnRule.InputTransformerProperty(
            input_paths_map=dict(paths), input_template=f'"{self._plan.name}: {template}"'
        )
        events.CfnRule(
            self,
            name,
            event_pattern={"source": [source], "detail-type": list(kinds), "detail": dict(detail)},
            targets=[
                events.CfnRule.TargetProperty(
                    arn=self._topic, id="topic", input_transformer=transformer
                )
            ],
        )

    def _block_end(self, warning: BlockWarning) -> None:
        """Tell once of a Capacity Block's end: a schedule of one minute in one year."""
        at = warning.at
        text = (
            f"{self._plan.name}: the Capacity Block of pool {warning.pool} ends in "
            f"{warning.hours} h; EKS gives its nodes back 40 minutes before. meks status"
        )
        events.CfnRule(
            self,
            f"BlockEnd-{warning.pool}-{warning.hours}h",
            schedule_expression=f"cron({at.minute} {at.hour} {at.day} {at.month} ? {at.year})",
            targets=[events.CfnRule.TargetProperty(arn=self._topic, id="topic", input=f'"{text}"')],
        )

    def _budget(self, usd: float) -> None:
        """Watch what the account costs: a filter by tag counts nothing until it is activated."""
        subscriber = budgets.CfnBudget.SubscriberProperty(
            subscription_type="SNS", address=self._topic
        )
        budgets.CfnBudget(
            self,
            "Budget",
            budget=budgets.CfnBudget.BudgetDataProperty(
                budget_name=f"{self._plan.name}-monthly",
                budget_type="COST",
                time_unit="MONTHLY",
                budget_limit=budgets.CfnBudget.SpendProperty(amount=usd, unit="USD"),
            ),
            notifications_with_subscribers=[
                budgets.CfnBudget.NotificationWithSubscribersProperty(
                    notification=budgets.CfnBudget.NotificationProperty(
                        notification_type=kind,
                        comparison_operator="GREATER_THAN",
                        threshold=percent,
                        threshold_type="PERCENTAGE",
                    ),
                    subscribers=[subscriber],
                )
                for kind, percent in (("ACTUAL", 80), ("ACTUAL", 100), ("FORECASTED", 100))
            ],
        )


def _query(
    key: str,
    namespace: str,
    name: str,
    dimensions: Mapping[str, str],
    statistic: str,
    *,
    alone: bool = False,
) -> cloudwatch.CfnAlarm.MetricDataQueryProperty:
    """Ask for one metric by the minute."""
    return cloudwatch.CfnAlarm.MetricDataQueryProperty(
        id=key,
        return_data=alone,
        metric_stat=cloudwatch.CfnAlarm.MetricStatProperty(
            metric=cloudwatch.CfnAlarm.MetricProperty(
                namespace=namespace,
                metric_name=name,
                dimensions=[
                    cloudwatch.CfnAlarm.DimensionProperty(name=each, value=value)
                    for each, value in dimensions.items()
                ],
            ),
            period=60,
            stat=statistic,
        ),
    )
