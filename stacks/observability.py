"""The Observability stack: metrics of the GPUs, alarms, who hears of them, and a budget."""

import base64
import math
from collections.abc import Mapping, Sequence
from textwrap import indent

import aws_cdk as cdk
import yaml
from aws_cdk import aws_aps as aps
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_sns as sns
from constructs import Construct

from megatron_eks.config.cluster import Observability
from megatron_eks.plan.cluster.alerts import rule_groups
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.observability import (
    SCRAPER_ZONES,
    block_warnings,
    scrape_configuration,
)
from megatron_eks.stacks.alarms import Alarms
from megatron_eks.stacks.base import BaseStack, Place, encryption_key, log_group
from megatron_eks.stacks.policies import account, document, partition, same_account, statement

_EVENTS = "events.amazonaws.com"
_OTHER_PUBLISHERS = ["cloudwatch.amazonaws.com", "budgets.amazonaws.com", "aps.amazonaws.com"]


class ObservabilityStack(BaseStack):
    """What tells people of trouble, also while nobody looks."""

    def __init__(
        self,
        scope: Construct,
        plan: ClusterPlan,
        wish: Observability,
        *,
        place: Place | None,
        security_groups: Sequence[str],
        file_systems: Sequence[fsx.CfnFileSystem],
        nat_gateways: Mapping[str, str],
    ) -> None:
        super().__init__(scope, plan, "Observability", "Metrics, alarms and budget")
        self._plan, self._wish = plan, wish
        is_managed = wish.prometheus_url is None
        log_name = f"/aws/vendedlogs/prometheus/{plan.name}"
        self._key = encryption_key(
            self,
            "Key",
            region=plan.region,
            description=f"Metrics and alarms of {plan.name}",
            removal=cdk.RemovalPolicy.DESTROY,
            log_groups=log_name if is_managed else None,
            publishers=[_EVENTS, *_OTHER_PUBLISHERS],
        )
        self._topic = self._alarm_topic()
        if is_managed and place is not None:
            subnets = list(place.private_subnets.values())[:SCRAPER_ZONES]
            self._metrics(log_name, subnets, security_groups)
        alarms = Alarms(self, plan.name, self._topic)
        # How large a file system is that exists, AWS knows and the file does not say.
        made = () if plan.storage.existing else plan.storage.file_systems
        for file_system, lustre in zip(file_systems, made, strict=True):
            alarms.lustre(file_system, lustre)
        for zone, gateway in nat_gateways.items():
            alarms.nat(zone, gateway)
        alarms.node_launches([pool.name for pool in plan.pools])
        alarms.builds([image.name for image in plan.images])
        for warning in block_warnings(plan.pools):
            alarms.block_end(warning)
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
        if self._wish.webhook_secret is not None:
            # Its address is a secret: CloudFormation reads it, and the template has its name alone
            # (CloudFormation User Guide, "Get a secret or secret value from Secrets Manager").
            secret = f"{{{{resolve:secretsmanager:{self._wish.webhook_secret}:SecretString}}}}"
            sns.CfnSubscription(
                self, "Webhook", topic_arn=topic.ref, protocol="https", endpoint=secret
            )
        cdk.CfnOutput(self, "AlarmTopicArn", value=topic.ref)
        return topic.ref

    def _metrics(
        self, log_name: str, subnets: Sequence[str], security_groups: Sequence[str]
    ) -> None:
        plan = self._plan
        logs = log_group(self, "Logs", name=log_name, key=self._key)
        workspace = aps.CfnWorkspace(
            self,
            "Workspace",
            alias=plan.name,
            # Into a workspace with a key of one's own the scraper writes only through two roles
            # (Amazon Managed Prometheus, "Using an AWS managed collector"). AWS's key encrypts it.
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
        scraped = scrape_configuration(plan.platform.namespaces, queues=plan.platform.kueue)
        written = yaml.safe_dump(scraped, sort_keys=False)
        cluster = f"arn:{partition()}:eks:{plan.region}:{account()}:cluster/{plan.eks_name}"
        # Its rights in the cluster are an access entry that the service makes itself.
        aps.CfnScraper(
            self,
            "Scraper",
            alias=plan.name,
            source=aps.CfnScraper.SourceProperty(
                eks_configuration=aps.CfnScraper.EksConfigurationProperty(
                    cluster_arn=cluster,
                    subnet_ids=[*subnets],
                    security_group_ids=[*security_groups],
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
