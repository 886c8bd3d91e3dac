"""What somebody is told of while nobody looks: the rules of alerts.yaml, over GPUs and jobs."""

from pathlib import Path
from typing import Any, NamedTuple

from megatron_eks.config.load import read_mapping

_FILE = Path(__file__).with_suffix(".yaml")
_GROUPS: Any = read_mapping(_FILE.read_text(encoding="utf-8"), _FILE.name).value


class Alert(NamedTuple):
    """A condition that somebody is told of."""

    name: str
    query: str
    """PromQL; what it returns has the trouble."""
    severity: str
    summary: str
    remedy: str


GPU_ALERTS, JOB_ALERTS = (
    tuple(
        Alert(
            each["alert"], each["expr"], each["labels"]["severity"], *each["annotations"].values()
        )
        for each in group["rules"]
    )
    for group in _GROUPS["groups"]
)
ALERTS = (*GPU_ALERTS, *JOB_ALERTS)


def rule_groups() -> dict[str, object]:
    """Return the alerts as Prometheus reads them."""
    return {**_GROUPS}
