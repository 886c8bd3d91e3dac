"""What somebody is told of while nobody looks, as rules over metrics of GPUs and of jobs."""

from dataclasses import dataclass

from megatron_eks.plan.cluster.observability import DCGM_EXPORTER, QUEUES, TRAINING


@dataclass(frozen=True)
class Alert:
    """A condition that somebody is told of."""

    name: str
    query: str
    """PromQL; what it returns has the trouble."""
    minutes: int
    """How long it must last."""
    severity: str
    """`page`: work is lost while nobody looks; `ticket`: see to it today."""
    summary: str
    remedy: str


# Xids that a program causes and that leave the GPU as it was: illegal access and instructions,
# resets of channels, preemptive clean-up (NVIDIA, "Xid Errors").
_OF_PROGRAMS = (13, 31, 43, 45)
# A series has its pod's name and the code's text, so that another job's is another series.
_XID, _XID_BEFORE = (
    f"max by (Hostname, gpu) (DCGM_FI_DEV_XID_ERRORS{when})" for when in ("", " offset 10m")
)
_GPUS = "count by (Hostname) (DCGM_FI_DEV_GPU_TEMP)"

# Field names from DCGM's API, "Field Identifiers"; labels from NVIDIA/dcgm-exporter, which gives a
# GPU's series the pod that has it.
GPU_ALERTS: tuple[Alert, ...] = (
    Alert(
        "GpuError",
        # The metric keeps the last code for ever, so what tells is that it changes. Before the
        # first one there is none, or 0 (NVIDIA/dcgm-exporter, issue 700).
        f"({_XID} != {_XID_BEFORE} or {_XID} unless {_XID_BEFORE}) "
        f"unless ({' or '.join(f'{_XID} == {n}' for n in (0, *_OF_PROGRAMS))})",
        0,
        "page",
        "GPU {{ $labels.gpu }} of {{ $labels.Hostname }} reports Xid {{ $value }}",
        "meks nodes; a job on it stops or goes wrong",
    ),
    Alert(
        "GpuLost",
        f"{_GPUS} < max_over_time({_GPUS}[1h:1m])",
        5,
        "page",
        "{{ $labels.Hostname }} shows {{ $value }} GPUs, fewer than an hour ago",
        "meks nodes cordon NODE, then meks submit: the job goes on from its checkpoint",
    ),
    Alert(
        "GpuMemoryFailing",
        "DCGM_FI_DEV_ROW_REMAP_FAILURE > 0",
        0,
        "page",
        "GPU {{ $labels.gpu }} of {{ $labels.Hostname }} cannot remap failing memory any more",
        "meks nodes cordon NODE, and have AWS replace the instance",
    ),
    Alert(
        "GpuHot",
        # Where A100 and H100 begin to slow down (nvidia-smi -q -d TEMPERATURE), and wherever one
        # says that it does: bits 5 and 6 are its software's and hardware's slowdown by heat (NVML,
        # "NvmlClocksEventReasons").
        "DCGM_FI_DEV_GPU_TEMP >= 85 or (DCGM_FI_DEV_GPU_TEMP and on (Hostname, gpu) "
        "floor(DCGM_FI_DEV_CLOCKS_EVENT_REASONS / 32) % 4 > 0)",
        10,
        "ticket",
        "GPU {{ $labels.gpu }} of {{ $labels.Hostname }} is at {{ $value }} degrees and slows down",
        "meks nodes; one slow GPU holds up all ranks",
    ),
    Alert(
        "JobIdle",
        'max by (namespace, pod) (DCGM_FI_PROF_GR_ENGINE_ACTIVE{pod!=""}) < 0.05',
        15,
        "page",
        "pod {{ $labels.pod }} has GPUs and does not use them",
        "meks status JOB, then meks logs JOB --explain",
    ),
    Alert(
        "NodeIdle",
        "max by (Hostname) (DCGM_FI_DEV_GPU_UTIL) == 0",
        60,
        "ticket",
        "{{ $labels.Hostname }} has done nothing for an hour and is billed",
        "meks cost, then meks scale POOL N",
    ),
    Alert(
        "GpuMetricsMissing",
        f'up{{job="{DCGM_EXPORTER}"}} == 0',
        15,
        "ticket",
        "no GPU metrics from {{ $labels.instance }}",
        "kubectl -n kube-system get pods -l app.kubernetes.io/name=dcgm-exporter",
    ),
)

_OF_A_JOB = "by (namespace, job)"
_STARTED = "meks_start_timestamp_seconds"

# Series of a job's exporter: megatron_eks/programs/exporter/series.py, which says what they are.
# Of those with limits of their own, the exporter knows the plan and the run's own pace.
JOB_ALERTS = (
    Alert(
        "NoStep",
        # Before its first step a run has as long as two restarts take.
        "(time() - meks_last_step_timestamp_seconds > meks_silent_limit_seconds "
        "and meks_step < meks_steps) or "
        f"(time() - {_STARTED} > meks_start_limit_seconds unless on (namespace, job) meks_step)",
        1,
        "page",
        "job {{ $labels.job }} has made no step for {{ $value | humanizeDuration }}",
        "meks status {{ $labels.job }}, then meks logs {{ $labels.job }} --explain",
    ),
    Alert(
        "SlowerThanPlanned",
        # Nine of ten runs like it are as fast; a quarter of an hour covers saves and validation.
        "avg_over_time(meks_step_seconds[15m]) > meks_plan_step_seconds_high",
        15,
        "ticket",
        "job {{ $labels.job }} takes {{ $value | humanizeDuration }} a step, more than predicted",
        "meks verify: network, GPUs and storage of the nodes beside what they should reach",
    ),
    Alert(
        "LossNotFinite",
        # Only NaN differs from itself. A single step that fp16 skips has no loss either.
        "meks_loss != meks_loss or abs(meks_loss) == Inf",
        2,
        "page",
        "the loss of job {{ $labels.job }} is no number",
        "meks cancel {{ $labels.job }}; lower the learning rate, and go on from the weights of a "
        "checkpoint before it",
    ),
    Alert(
        "LossRising",
        # Half-hour means hide noise; a fifth is more than other data or a warm-up make.
        "avg_over_time(meks_loss[30m]) > "
        "1.2 * min_over_time(avg_over_time(meks_loss[30m])[6h:10m])",
        15,
        "ticket",
        "the loss of job {{ $labels.job }} is 20 % above its lowest half hour of the last six",
        "meks logs {{ $labels.job }}: look at learning rate, gradient norm and data",
    ),
    Alert(
        "EfaSilent",
        # Steps of several nodes exchange gradients: without a byte over EFA they go over TCP.
        'sum by (namespace, job, pod) (rate(meks_efa_hw_counter_total{counter=~".*_bytes"}[5m])) '
        f"== 0 and on (namespace, job) max {_OF_A_JOB} (changes(meks_step[5m])) > 0",
        5,
        "page",
        "job {{ $labels.job }} makes steps, and pod {{ $labels.pod }} sends nothing over EFA",
        "meks verify --job {{ $labels.job }}, then meks logs {{ $labels.job }} --explain",
    ),
    Alert(
        "CheckpointOld",
        # A start has as long as a checkpoint, because it may have read the last one.
        f"time() - max {_OF_A_JOB} (meks_checkpoint_timestamp_seconds or {_STARTED}) "
        f"> max {_OF_A_JOB} (meks_checkpoint_limit_seconds)",
        5,
        "page",
        "the newest checkpoint of job {{ $labels.job }} is {{ $value | humanizeDuration }} old",
        "meks ckpt ls {{ $labels.job }}; meks logs {{ $labels.job }} says why a save failed",
    ),
    Alert(
        "GoodputLow",
        # The plan counts on failures; an hour lets a young run outgrow its start.
        "meks_goodput_ratio < meks_plan_goodput_ratio - 0.1",
        60,
        "ticket",
        "of the time of job {{ $labels.job }} {{ $value | humanizePercentage }} counts, "
        "10 points less than planned",
        "meks status {{ $labels.job }}: restarts, saves and validation take the rest",
    ),
    Alert(
        "JobRestarted",
        f"time() - max {_OF_A_JOB} (meks_restart_timestamp_seconds) < 900",
        0,
        "ticket",
        "job {{ $labels.job }} has started again",
        "meks logs {{ $labels.job }} --explain says why",
    ),
    Alert(
        "JobFinished",
        f"max {_OF_A_JOB} (last_over_time(meks_finished[10m])) == 1",
        0,
        "info",
        "job {{ $labels.job }} has finished",
        "meks status {{ $labels.job }}; meks scale POOL 0 if nothing else needs its nodes",
    ),
    Alert(
        "JobEndedEarly",
        # A series outlives its pod by what a range looks back on. Restarts take less than 5 min.
        f"max {_OF_A_JOB} (last_over_time({_STARTED}[20m])) "
        f"unless max {_OF_A_JOB} (last_over_time({_STARTED}[5m])) "
        f"unless max {_OF_A_JOB} (last_over_time(meks_finished[25m])) == 1",
        0,
        "page",
        "job {{ $labels.job }} has failed or was cancelled, and did not come back",
        "meks status {{ $labels.job }}, then meks logs {{ $labels.job }} --explain",
    ),
    Alert(
        "PodsPending",
        # EKS serves the scheduler's own count, which names no pods.
        'scheduler_pending_pods{queue="unschedulable"} > 0',
        30,
        "ticket",
        "{{ $value }} pods have waited for a node for half an hour",
        "meks status says whose they are and what they wait for; meks scale brings nodes",
    ),
    Alert(
        "QueueStands",
        # Kueue tells how many wait, and not how long each: so long nobody of theirs was let in.
        "sum by (cluster_queue) (kueue_pending_workloads) > 0 unless "
        "sum by (cluster_queue) (increase(kueue_admitted_workloads_total[10m])) > 0",
        240,
        "ticket",
        "{{ $value }} jobs wait in the queue of team {{ $labels.cluster_queue }}, and none of "
        "them has started for 4 hours",
        "meks queue says why each waits and when it is likely to start; meks scale brings nodes",
    ),
    Alert(
        "JobMetricsMissing",
        f'up{{job=~"{TRAINING}|{QUEUES}"}} == 0',
        15,
        "ticket",
        "pod {{ $labels.pod }} answers no scraper, so nobody watches its job, or the queues",
        "meks logs JOB | grep metrics, and see that the policy allow-metrics is there; "
        "of Kueue: kubectl -n kueue-system get pods",
    ),
)

ALERTS = (*GPU_ALERTS, *JOB_ALERTS)


def rule_groups() -> dict[str, object]:
    """Return the alerts as Prometheus reads them (Prometheus, "Alerting rules")."""
    groups = {"gpus": GPU_ALERTS, "jobs": JOB_ALERTS}
    return {
        "groups": [
            {"name": name, "rules": [_rule(alert) for alert in alerts]}
            for name, alerts in groups.items()
        ]
    }


def _rule(alert: Alert) -> dict[str, object]:
    return {
        "alert": alert.name,
        "expr": alert.query,
        "for": f"{alert.minutes}m",
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "next": alert.remedy},
    }
