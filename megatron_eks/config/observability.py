"""The cluster file's block about metrics, alarms and the budget."""

from typing import Literal

from pydantic import Field

from megatron_eks.config.model import DnsName, Email, Model


class Grafana(Model):
    """The Grafana that gets the dashboards."""

    url: str
    token_secret: DnsName
    """A Kubernetes Secret with the token."""


class Observability(Model):
    """Managed metrics, alarms and a budget."""

    enabled: bool = False
    metrics: Literal["amp", "cloudwatch", "own"] = "amp"
    """Where metrics go: managed Prometheus, CloudWatch, or your own Prometheus."""
    prometheus_url: str | None = None
    """Address of your own Prometheus."""
    alarm_email: Email | None = None
    webhook_secret: DnsName | None = None
    """A Kubernetes Secret with the address that alarms are posted to."""
    monthly_budget_usd: float | None = Field(default=None, gt=0)
    retention_days: int = Field(default=150, ge=1, le=1095)
    """How long metrics are kept."""
    grafana: Grafana | None = None
    """Where dashboards go."""
