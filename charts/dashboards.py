"""What a Grafana and a Prometheus of the user's own read of a cluster."""

from collections.abc import Iterator
from pathlib import Path

from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.observability import scrape_configuration
from megatron_eks.plan.cost import node_price
from megatron_eks.project import ROOT

_BUILT = ROOT / "megatron_eks" / "assets" / "dashboards"


def write_dashboards(plan: ClusterPlan, folder: Path) -> None:
    """Write the dashboards of a cluster that is watched, and remove those of one that is not.

    That of the teams shows what their queues tell.
    """
    for built in sorted(_BUILT.glob("*.json")):
        file = folder / built.name
        if plan.observability is None or (built.stem == "teams" and not plan.platform.kueue):
            file.unlink(missing_ok=True)
            continue
        folder.mkdir(parents=True, exist_ok=True)
        text = built.read_text(encoding="utf-8").replace("CLUSTER_NAME", plan.name)
        file.write_text(text.replace("USD_PER_GPU_HOUR", _usd(plan)), encoding="utf-8")


def write_rules(plan: ClusterPlan, folder: Path) -> None:
    """Write what a Prometheus of one's own scrapes and judges; remove it where there is none."""
    texts: dict[str, str] = {}
    if plan.observability is not None and plan.observability.prometheus_url is not None:
        # Few need them, and each takes time to load.
        import yaml  # noqa: PLC0415 -- as above

        from megatron_eks.plan.cluster.alerts import rule_groups  # noqa: PLC0415 -- as above

        platform = plan.platform
        scraped = scrape_configuration(platform.namespaces, queues=platform.kueue, in_cluster=True)
        contents = {"scrape": scraped, "rules": rule_groups()}
        texts = {name: yaml.safe_dump(each, sort_keys=False) for name, each in contents.items()}
        folder.mkdir(parents=True, exist_ok=True)
    for name in ("scrape", "rules"):
        file = folder / f"{name}.yaml"
        if name in texts:
            file.write_text(texts[name], encoding="utf-8")
        else:
            file.unlink(missing_ok=True)


def _usd(plan: ClusterPlan) -> str:
    """Return what a GPU costs an hour, the mean of all that `max_nodes` brings; 0 if unknown."""
    prices = [price for price in _of_gpus(plan) if price is not None]
    return f"{sum(prices) / len(prices):.4f}" if prices else "0"


def _of_gpus(plan: ClusterPlan) -> Iterator[float | None]:
    for pool in plan.pools:
        price, gpus = node_price(pool.instance.name, pool.capacity.kind, plan), pool.instance.gpus
        yield from [None if price is None else price / gpus] * (pool.max_nodes * gpus)
