"""The dashboards: fresh, complete, and with a cluster's own name and price."""

import json
from dataclasses import replace

import pytest

from assets.dashboards.build import HERE, dashboards
from megatron_eks.charts.dashboards import write_dashboards
from tests.charts.test_metrics import WATCHED

BOARDS = {name: json.loads(text) for name, text in dashboards().items()}


def test_what_is_committed_is_what_is_built():
    """`make generate` writes it."""
    committed = {file.stem: file.read_text() for file in HERE.glob("*.json")}
    assert committed == dashboards()


@pytest.mark.parametrize("name", BOARDS)
def test_each_panel_says_its_unit_and_what_to_do(name):
    """In a sentence, and with a legend for each of several curves."""
    for panel in BOARDS[name]["panels"]:
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["description"].endswith(".")
        if panel["type"] == "timeseries":
            assert all(target["legendFormat"] for target in panel["targets"])
            assert panel["options"]["legend"]["showLegend"]


@pytest.mark.parametrize("name", BOARDS)
def test_panels_do_not_overlap(name):
    """Nor leave the width of Grafana's grid."""
    places = [panel["gridPos"] for panel in BOARDS[name]["panels"]]
    assert len({(place["x"], place["y"]) for place in places}) == len(places)
    assert all(place["x"] + place["w"] <= 24 for place in places)


def written(folder, plan):
    """Return the dashboards of a plan by name."""
    write_dashboards(plan, folder)
    return {file.stem: json.loads(file.read_text()) for file in folder.glob("*")}


def test_they_get_the_clusters_name_and_price(tmp_path):
    """A p4d.24xlarge at 21.957642 USD has eight GPUs; no placeholder is left."""
    queued = replace(WATCHED, platform=replace(WATCHED.platform, kueue=True))
    found = written(tmp_path, queued)
    assert found.keys() == BOARDS.keys()
    for name, board in found.items():
        assert (board["title"], board["uid"]) == (f"techpulse: {name}", f"meks-techpulse-{name}")
    variables = {each["name"]: each for each in found["money"]["templating"]["list"]}
    assert variables["cluster"]["query"] == "techpulse"
    assert variables["usd"]["query"] == "2.7447"
    text = json.dumps(found)
    assert "CLUSTER_NAME" not in text
    assert "USD_PER" not in text


def test_gpus_of_unknown_price_cost_nothing_yet(tmp_path):
    """The page says so beside the field, where the price can be typed."""
    plan = replace(WATCHED, prices=replace(WATCHED.prices, region="eu-north-1"))
    money = written(tmp_path, plan)["money"]
    assert [each["query"] for each in money["templating"]["list"] if each["name"] == "usd"] == ["0"]


def test_a_cluster_that_is_not_watched_has_none(tmp_path):
    """What an earlier run left goes; without queues there is nothing to tell of teams."""
    assert written(tmp_path, WATCHED).keys() == BOARDS.keys() - {"teams"}
    assert written(tmp_path, replace(WATCHED, observability=None)) == {}
