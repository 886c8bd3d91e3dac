"""What all dashboards have alike: a panel says its unit, and what to do when it looks wrong."""

import json
from collections.abc import Iterable

from grafana_foundation_sdk.builders.common import VizLegendOptions
from grafana_foundation_sdk.builders.dashboard import (
    ConstantVariable,
    Dashboard,
    DashboardLink,
    DatasourceVariable,
    QueryVariable,
    TextBoxVariable,
)
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.stat import Panel as Stat
from grafana_foundation_sdk.builders.timeseries import Panel as Timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    DataSourceRef,
    LegendDisplayMode,
    LegendPlacement,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardLinkType,
    DynamicConfigValue,
    VariableRefresh,
    VariableSort,
)

# What `python -m charts` puts a cluster's own in the place of: charts/dashboards.py.
CLUSTER_NAME, USD_PER_GPU_HOUR = "CLUSTER_NAME", "USD_PER_GPU_HOUR"

_TAG = f"meks-{CLUSTER_NAME}"
_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_COLUMNS, _ROWS = 12, 8
_LOW, _HIGH = "planned, fast", "planned, slow"


def curves(title: str, unit: str, advice: str, *queries: tuple[str, str]) -> Timeseries:
    """Return a panel of curves; each query has its legend before it."""
    found = Timeseries().title(title).unit(unit).description(advice).datasource(_SOURCE)
    for query in _targets(queries):
        found.with_target(query)
    shown = VizLegendOptions().show_legend(show_legend=True).display_mode(LegendDisplayMode.LIST)
    shown.placement(LegendPlacement.BOTTOM)
    return found.legend(shown).height(_ROWS).span(_COLUMNS).fill_opacity(0)


def number(title: str, unit: str, advice: str, query: str) -> Stat:
    """Return a panel of one number over the selected time."""
    found = Stat().title(title).unit(unit).description(advice).datasource(_SOURCE)
    found.with_target(Dataquery().expr(query).instant().ref_id("A").datasource(_SOURCE))
    return found.height(_ROWS).span(_COLUMNS)


def with_band(panel: Timeseries, low: str, high: str) -> Timeseries:
    """Draw what lies between two queries as a band behind the curves."""
    for target in _targets([(_LOW, low), (_HIGH, high)], first="X"):
        panel.with_target(target)
    filled = DynamicConfigValue("custom.fillBelowTo", _LOW)
    opacity = DynamicConfigValue("custom.fillOpacity", 20)
    thin = DynamicConfigValue("custom.lineWidth", 0)
    return panel.override_by_name(_HIGH, [filled, opacity, thin]).override_by_name(_LOW, [thin])


def board(
    name: str, panels: Iterable[Timeseries | Stat], *, variable: tuple[str, str] | None = None
) -> str:
    """Return a dashboard as Grafana imports it.

    `variable` is a label to choose a value of, and a series that has it.
    """
    found = Dashboard(f"{CLUSTER_NAME}: {name}").uid(f"meks-{CLUSTER_NAME}-{name}").tags([_TAG])
    others = DashboardLink("Dashboards of this cluster").type(DashboardLinkType.DASHBOARDS)
    found.link(others.tags([_TAG]).keep_time(keep_time=True))
    found.time("now-3h", "now").refresh("1m").editable()
    found.with_variable(DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    found.with_variable(ConstantVariable("cluster").value(CLUSTER_NAME))
    if variable:
        label, series = variable
        chosen = QueryVariable(label).query(f"label_values({series}, {label})").datasource(_SOURCE)
        chosen.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(VariableSort.ALPHABETICAL_ASC)
        found.with_variable(chosen)
    if name == "money":
        price = TextBoxVariable("usd").label("USD per GPU hour").default_value(USD_PER_GPU_HOUR)
        advice = "from the plan: the mean of all pools' GPUs whose price is known; 0 if none is"
        found.with_variable(price.description(advice))
    for each in panels:
        found.with_panel(each)
    return json.dumps(found.build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def _targets(queries: Iterable[tuple[str, str]], first: str = "A") -> Iterable[Dataquery]:
    for place, (legend, query) in enumerate(queries):
        target = Dataquery().expr(query).legend_format(legend).range()
        yield target.ref_id(chr(ord(first) + place)).datasource(_SOURCE)
