"""The cluster file's block about metrics, alarms and the budget."""

from typing import Literal

from pydantic import Field

from megatron_eks.config.model import AwsSecretName, DnsName, Email, Model, PrivateUrl, WebUrl


class Grafana(Model):
    """The Grafana that gets the dashboards."""

    url: PrivateUrl
    token_secret: DnsName
    """A Kubernetes Secret that holds a service account's token as `token`: `meks secret set`."""


class Observability(Model):
    """Managed metrics, alarms and a budget."""

    enabled: bool = False
    metrics: Literal["amp", "cloudwatch", "own"] = "amp"
    """Where metrics go: managed Prometheus, CloudWatch, or your own Prometheus."""
    prometheus_url: WebUrl | None = None
    """Address of your own Prometheus; `meks apply` asks it whether it has the rules."""
    alarm_email: Email | None = None
    webhook_secret: AwsSecretName | None = None
    """A secret of AWS Secrets Manager that holds the HTTPS address which alarms are posted to."""
    monthly_budget_usd: float | None = Field(default=None, gt=0)
    retention_days: int = Field(default=150, ge=1, le=1095)
    """How long metrics are kept."""
    grafana: Grafana | None = None
    """Where `meks apply` puts the dashboards."""
