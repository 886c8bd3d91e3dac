"""Grafana's dashboards with a cluster's name and prices in them."""

from collections.abc import Iterator
from pathlib import Path

from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cost import node_price
from megatron_eks.project import ROOT

_BUILT = ROOT / "megatron_eks" / "assets" / "dashboards"


def write_dashboards(plan: ClusterPlan, folder: Path) -> None:
    """Write the dashboards of a cluster that is watched, and remove those of one that is not."""
    for built in sorted(_BUILT.glob("*.json")):
        file = folder / built.name
        if plan.observability is None:
            file.unlink(missing_ok=True)
            continue
        folder.mkdir(parents=True, exist_ok=True)
        text = built.read_text(encoding="utf-8").replace("CLUSTER_NAME", plan.name)
        file.write_text(text.replace("USD_PER_GPU_HOUR", _usd(plan)), encoding="utf-8")


def _usd(plan: ClusterPlan) -> str:
    """Return what a GPU costs an hour, the mean of all that `max_nodes` brings; 0 if unknown."""
    prices = [price for price in _of_gpus(plan) if price is not None]
    return f"{sum(prices) / len(prices):.4f}" if prices else "0"


def _of_gpus(plan: ClusterPlan) -> Iterator[float | None]:
    for pool in plan.pools:
        price, gpus = node_price(pool.instance.name, pool.capacity.kind, plan), pool.instance.gpus
        yield from [None if price is None else price / gpus] * (pool.max_nodes * gpus)
