"""Writes the dashboards beside it; run by `make generate`, tested fresh.

Series of jobs: megatron_eks/programs/exporter/series.py. Series of GPUs: charts/platform/
dcgm_exporter.py. The others are the scraper's: megatron_eks/plan/cluster/observability.py.
"""

from collections.abc import Mapping
from pathlib import Path

from grafana_foundation_sdk.models import units

from assets.dashboards.job import JOB, OF_A_JOB
from assets.dashboards.panels import board, curves, number

HERE = Path(__file__).parent

_NODE = '{node="$node"}'
_GPU = "GPU {{gpu}}"
_GPUS = "DCGM_FI_DEV_GPU_UTIL"
_WITH_A_JOB = f'on (node) group by (node) ({_GPUS}{{pod!=""}})'
_USED, _UNUSED = f"({_GPUS} and {_WITH_A_JOB})", f"({_GPUS} unless {_WITH_A_JOB})"


def _sum_over_time(series: str) -> str:
    """Return GPU hours in the selected time; a node that joins or leaves counts by the minute."""
    return f"(sum(sum_over_time(count({series})[$__range:1m])) or vector(0)) / 60"


_CLUSTER = (
    curves(
        "Nodes of $cluster",
        units.Number,
        "Fewer GPU nodes than a job needs: meks nodes, then meks scale POOL N.",
        ("all nodes", 'count(group by (node) (node_cpu_usage_seconds_total{job="kubelet"}))'),
        ("GPU nodes", f"count(group by (node) ({_GPUS})) or vector(0)"),
    ),
    curves(
        "GPUs",
        units.Number,
        "Idle GPUs are billed: meks status says what runs, meks scale POOL N takes nodes away.",
        ("busy", f"count({_GPUS} > 0) or vector(0)"),
        ("idle", f"count({_GPUS} == 0) or vector(0)"),
    ),
    curves(
        "Pending pods",
        units.Number,
        "Unschedulable for long: meks status says whose they are and what they wait for.",
        ("{{queue}}", "sum by (queue) (scheduler_pending_pods)"),
    ),
    curves(
        "Alerts firing",
        units.Number,
        "Each message says what to do next; docs/observability.md explains the alerts.",
        ("{{alertname}}", 'count by (alertname) (ALERTS{alertstate="firing"})'),
    ),
    curves(
        "Progress of jobs",
        units.PercentUnit,
        "A flat line is a job that makes no step: meks status JOB, then meks logs JOB --explain.",
        ("{{job}}", f"{OF_A_JOB} (meks_step / meks_steps)"),
    ),
    curves(
        "Shared file system in use",
        units.PercentUnit,
        "Near 100 % saves fail: meks ckpt prune JOB, or enlarge the file system.",
        ("in use", "1 - min(meks_shared_free_bytes / meks_shared_bytes)"),
    ),
    curves(
        "CPUs in use on each node",
        units.Number,
        "All CPUs of a GPU node busy: the data loader holds the GPUs up; use fewer workers.",
        ("{{node}}", "sum by (node) (rate(node_cpu_usage_seconds_total[$__rate_interval]))"),
    ),
    curves(
        "Memory in use on each node",
        units.BytesSI,
        "Rising until a pod is killed: meks logs JOB --explain; use fewer data workers.",
        ("{{node}}", "max by (node) (node_memory_working_set_bytes)"),
    ),
)

_HARDWARE = (
    curves(
        "GPU in use",
        units.Percent,
        "One GPU lower than the others: its rank waits or has failed; meks logs JOB --explain.",
        (_GPU, f"{_GPUS}{_NODE}"),
    ),
    curves(
        "Tensor cores active",
        units.PercentUnit,
        "Low while the GPU is in use: small matrices, waits for other ranks, or no bf16.",
        (_GPU, f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{_NODE}"),
    ),
    curves(
        "Memory in use",
        units.Mebibytes,
        "Near the GPU's size: the next longer batch may not fit; meks plan says what is needed.",
        (_GPU, f"DCGM_FI_DEV_FB_USED{_NODE}"),
    ),
    curves(
        "Power",
        units.Watt,
        "One GPU below the others under the same load is throttled: see its temperature.",
        (_GPU, f"DCGM_FI_DEV_POWER_USAGE{_NODE}"),
    ),
    curves(
        "Temperature",
        units.Celsius,
        "85 degrees or more slows all ranks down: meks nodes cordon $node, then replace it.",
        (_GPU, f"DCGM_FI_DEV_GPU_TEMP{_NODE}"),
        ("memory of " + _GPU, f"DCGM_FI_DEV_MEMORY_TEMP{_NODE}"),
    ),
    curves(
        "ECC: rows of memory remapped",
        units.Number,
        "Uncorrectable rows rise, or remapping fails: meks nodes cordon $node, then replace it.",
        ("uncorrectable, " + _GPU, f"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{_NODE}"),
        ("correctable, " + _GPU, f"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS{_NODE}"),
        ("remapping failed, " + _GPU, f"DCGM_FI_DEV_ROW_REMAP_FAILURE{_NODE}"),
    ),
    curves(
        "Last Xid",
        units.Number,
        "13, 31, 43 and 45 are a program's fault; any other is the GPU's: meks nodes.",
        (_GPU, f"DCGM_FI_DEV_XID_ERRORS{_NODE}"),
    ),
    curves(
        "NVLink traffic",
        # A rate, though its list calls it a counter (KempnerInstitute/kempnerpulse, issue 10).
        units.MegabytesPerSecond,
        "One GPU apart from the others: a link is down; meks verify --check all-reduce.",
        (_GPU, f"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{_NODE}"),
    ),
    curves(
        "EFA traffic, by interface",
        units.BytesPerSecondSI,
        "None while a job of several nodes makes steps: it runs over TCP; meks verify.",
        (
            "{{device}} {{counter}}",
            'rate(meks_efa_hw_counter_total{node="$node",counter=~".*_bytes"}[$__rate_interval])',
        ),
    ),
    curves(
        "EFA packets lost or sent again, by interface",
        units.PacketsPerSecond,
        "Steady on one interface: meks nodes cordon $node, and submit the job again.",
        (
            "{{device}} {{counter}}",
            'rate(meks_efa_hw_counter_total{node="$node",counter!~".*_bytes"}[$__rate_interval])',
        ),
    ),
)

_MONEY = (
    curves(
        "GPU nodes, in USD an hour",
        units.Dollars,
        "Nodes without a job are billed as well: meks scale POOL N takes them away.",
        ("with a job", f"(count({_USED}) or vector(0)) * $usd"),
        ("without a job", f"(count({_UNUSED}) or vector(0)) * $usd"),
    ),
    curves(
        "Pods with GPUs, in USD an hour",
        units.Dollars,
        "A pod that nobody needs: meks status, then meks cancel JOB.",
        ("{{pod}}", f'count by (pod) ({_GPUS}{{pod!=""}}) * $usd'),
    ),
    number(
        "GPU nodes, in USD",
        units.Dollars,
        "More than planned: meks cost has the bill with everything that is no GPU node.",
        f"{_sum_over_time(_GPUS)} * $usd",
    ),
    number(
        "Idle GPUs, in USD",
        units.Dollars,
        "What the hours without a kernel have cost: meks cost says which jobs have nodes.",
        f"{_sum_over_time(f'{_GPUS} == 0')} * $usd",
    ),
)

_GPUS_OF = '{resource="nvidia.com/gpu"}'
_QUEUES = (
    curves(
        "Jobs that wait, by team",
        units.Number,
        "Not falling: meks queue says why each waits and when it is likely to start.",
        ("{{cluster_queue}}", "sum by (cluster_queue) (kueue_pending_workloads)"),
    ),
    curves(
        "GPUs in use beside the share, by team",
        units.Number,
        "Above its share a team borrows, and gives back when the owner submits: meks queue.",
        *(
            (
                f"{{{{cluster_queue}}}} {legend}",
                f"sum by (cluster_queue) (kueue_cluster_queue_{series}{_GPUS_OF})",
            )
            for legend, series in (("uses", "resource_usage"), ("share", "nominal_quota"))
        ),
    ),
)


def dashboards() -> Mapping[str, str]:
    """Return each dashboard by the name of its file."""
    return {
        "cluster": board("cluster", _CLUSTER),
        "job": board("job", JOB, variable=("job", "meks_start_timestamp_seconds")),
        "node": board("node", _HARDWARE, variable=("node", _GPUS)),
        "money": board("money", _MONEY),
        "teams": board("teams", _QUEUES),
    }


if __name__ == "__main__":
    for name, text in dashboards().items():
        (HERE / f"{name}.json").write_text(text, encoding="utf-8")
