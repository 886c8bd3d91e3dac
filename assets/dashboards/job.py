"""The panels of a job: how it trains beside what the plan says."""

from grafana_foundation_sdk.models import units

from assets.dashboards.panels import curves, with_band

_JOB = '{job="$job"}'
OF_A_JOB = "max by (job)"
_PODS_OF_A_JOB = f"on (namespace, pod) meks_start_timestamp_seconds{_JOB}"

JOB = (
    curves(
        "Step",
        units.Number,
        "Flat: meks status $job, then meks logs $job --explain. A drop is a restart.",
        ("step", f"{OF_A_JOB} (meks_step{_JOB})"),
        ("last step of the run", f"{OF_A_JOB} (meks_steps{_JOB})"),
    ),
    curves(
        "Loss",
        units.Number,
        "No number or rising: lower the learning rate and go on from earlier weights.",
        ("loss", f"{OF_A_JOB} (meks_loss{_JOB})"),
    ),
    with_band(
        curves(
            "Step time, and what the plan predicts",
            units.Seconds,
            "Above the band: meks verify --job $job goes through what may hold it up, and "
            "meks verify measures network, GPUs and storage.",
            ("step", f"{OF_A_JOB} (meks_step_seconds{_JOB})"),
        ),
        f"{OF_A_JOB} (meks_plan_step_seconds_low{_JOB})",
        f"{OF_A_JOB} (meks_plan_step_seconds_high{_JOB})",
    ),
    curves(
        "Tokens a second, of all GPUs",
        units.Number,
        "Dropping: steps take longer; see step time, data wait and saves.",
        ("tokens/s", f"{OF_A_JOB} (meks_tokens_per_second{_JOB})"),
    ),
    curves(
        "Share of the GPUs' peak (MFU)",
        units.PercentUnit,
        "Much less than meks plan says: look at step time, data wait and tensor cores.",
        ("MFU", f"{OF_A_JOB} (meks_mfu_ratio{_JOB})"),
    ),
    curves(
        "Tensor cores active, by pod",
        units.PercentUnit,
        "One pod apart from the others: its node is slow; look at the node dashboard.",
        ("{{pod}}", f"avg by (pod) (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE and {_PODS_OF_A_JOB})"),
    ),
    curves(
        "Gradient norm before clipping",
        units.Number,
        "Spikes come before a loss that is no number: lower the learning rate or check the data.",
        ("norm", f"{OF_A_JOB} (meks_grad_norm{_JOB})"),
    ),
    curves(
        "Wait for data in a step",
        units.Seconds,
        "More than a tenth of a step: use more data workers, or data on the fast file system.",
        ("wait", f"{OF_A_JOB} (meks_data_wait_seconds{_JOB})"),
    ),
    curves(
        "Age of the newest checkpoint",
        units.Seconds,
        "Over the limit: meks ckpt ls $job; meks logs $job says why a save failed.",
        ("age", f"time() - {OF_A_JOB} (meks_checkpoint_timestamp_seconds{_JOB})"),
        ("limit", f"{OF_A_JOB} (meks_checkpoint_limit_seconds{_JOB})"),
    ),
    curves(
        "Duration of a save",
        units.Seconds,
        "Growing: the file system is busy or full (alarms FileSystemBusy and FileSystemFull).",
        ("save", f"{OF_A_JOB} (meks_checkpoint_seconds{_JOB})"),
    ),
    curves(
        "Restarts",
        units.Number,
        "Each step up is a failure: meks logs $job --explain says why.",
        ("restarts", f"{OF_A_JOB} (meks_restarts{_JOB})"),
    ),
    curves(
        "Goodput",
        units.PercentUnit,
        "Below the plan: restarts, saves and validation take the rest; meks status $job.",
        ("so far", f"{OF_A_JOB} (meks_goodput_ratio{_JOB})"),
        ("planned", f"{OF_A_JOB} (meks_plan_goodput_ratio{_JOB})"),
    ),
)
