"""What a job costs with the cluster around it, and what a user pays instead of list prices."""

from datetime import date

import pytest

from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import parse_cluster
from megatron_eks.plan.cluster.cluster import check_cluster
from megatron_eks.plan.cost import cluster_cost, job_cost
from tests.plan.conftest import ROOT

REGION = "region: us-east-2"
TODAY = date(2026, 11, 1)


def test_a_job_pays_for_the_cluster_around_it(cluster, job):
    """File system, control plane, NAT and endpoints run as long as its nodes do."""
    plan, found = cluster(), job_cost(job(), cluster())
    assert found is not None
    assert found.cluster_usd_per_hour == cluster_cost(plan).idle_usd_per_hour
    assert found.usd_per_hour == pytest.approx(2 * 21.957642)
    hourly = sum(price or 0 for price in (found.usd_per_hour, found.cluster_usd_per_hour))
    assert found.usd == pytest.approx(hourly * 24 * found.days)
    billions = 10000 * 512 * 4096 / 1e9
    assert found.usd_per_billion_tokens == pytest.approx((found.usd or 0) / billions)


def test_prices_of_the_configuration_count(cluster, job):
    """Also where no list price is known, and for a Capacity Block."""
    block = "{type: capacity_block, id: cr-0123456789abcdef0, ends_at: 2026-12-01T11:30:00Z}"
    own = (
        "prices: {instance_hour: {p4d.24xlarge: 10}, control_plane_hour: 0.08, nat_hour: 0.05, "
        "endpoint_hour: 0.02, lustre_gib_month: 0.1}\n" + REGION
    )
    changes = {REGION: own, "max_nodes: 2": f"max_nodes: 2\n    capacity: {block}"}
    plan = cluster(changes)
    prices = {price.item: price.usd_per_hour for price in cluster_cost(plan).standing}
    assert prices["EKS control plane"] == 0.08
    assert prices["NAT gateway"] == 0.05
    assert prices["FSx for Lustre, GiB"] == pytest.approx(0.1 / 730)
    found = job_cost(job(on=changes), plan)
    assert found is not None
    assert found.usd_per_hour == 20


def test_a_price_of_a_type_that_no_pool_has_is_refused():
    """It would count for nothing."""
    text = (ROOT / "cluster.yaml").read_text() + "\nprices: {instance_hour: {p4d.24xlrge: 10}}\n"
    config, _ = parse_cluster(read_mapping(text, "cluster.yaml"))
    assert config is not None
    assert "MEKS-0339" in [each.code for each in check_cluster(config, TODAY)]


def test_epochs_are_those_of_the_training_part(job):
    """98 % of a corpus train; nobody says how large it is unless the file does."""
    assert job().training.epochs is None
    planned = job({"  num_workers: 8": "  num_workers: 8\n  corpus_tokens: 100000000"})
    assert planned.training.epochs == pytest.approx(10000 * 512 * 4096 / 98e6)
