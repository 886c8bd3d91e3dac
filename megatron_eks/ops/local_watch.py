"""The Prometheus of `meks local up --watch`: AWS's rules, on jobs alone, and what it tells."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

import yaml

from megatron_eks.config.codes import Code
from megatron_eks.ops.failure import USAGE, Failure

if TYPE_CHECKING:
    from megatron_eks.plan.cluster.cluster import ClusterPlan

_OFTEN = "5s"
_SECONDS = 5


def check_watched(plan: "ClusterPlan", cluster_file: Path, *, has_processes: bool) -> None:
    """Raise Failure where no job would tell a Prometheus anything."""
    if plan.observability is None or not has_processes:
        found = "only jobs of a watched cluster, on nodes that run their pods, tell how they go"
        remedy = f"set observability.enabled: true in {cluster_file}, and add --nodes 1"
        raise Failure(Code.NOT_WATCHED, found, remedy, exit_code=USAGE)


def write_watch(folder: Path, plan: "ClusterPlan") -> tuple[Path, Path]:
    """Write what the Prometheus reads: return the files of what it scrapes and of its rules."""
    from megatron_eks.plan.cluster.alerts import rule_groups  # noqa: PLC0415 -- takes a second
    from megatron_eks.plan.cluster.observability import scrape_training  # noqa: PLC0415 -- as above

    scraped = {
        "global": {"scrape_interval": _OFTEN, "evaluation_interval": _OFTEN},
        "scrape_configs": [scrape_training(*plan.platform.namespaces)],
    }
    files = folder / "scraped.yaml", folder / "rules.yaml"
    for file, content in zip(files, (scraped, rule_groups()), strict=True):
        file.write_text(yaml.safe_dump(content, sort_keys=False))
    return files


def alerts(port: int) -> Iterator[str]:
    """Yield what fires, a line each; a Prometheus that does not answer has a line too."""
    try:
        url = f"http://127.0.0.1:{port}/api/v1/alerts"
        with build_opener(ProxyHandler({})).open(url, timeout=_SECONDS) as answer:
            found = json.load(answer)["data"]["alerts"]
    except (URLError, OSError, ValueError) as problem:
        yield f"alerts are not known: {problem}"
        return
    for each in found:
        if each["state"] == "firing":
            told = each["annotations"]
            yield f"alert {each['labels']['alertname']}: {told['summary']} - {told['next']}"
