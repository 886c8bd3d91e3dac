"""Whether a job that logs to Weights & Biases can log in: no secret reaches the pods of a job.

Weights & Biases, "Environment variables"; megatron/training/global_vars.py (core_v0.19), where the
last rank calls wandb.init.
"""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, warning
from megatron_eks.config.job import MegatronBridgeJob, MegatronRun

_OPTION, _OVERRIDE = "--wandb-project", "logger.wandb_project"
# Each of these needs no key, or says where there is one; WANDB_API_KEY has a finding of its own.
_GIVEN = re.compile(r"WANDB_(API_KEY|MODE|DISABLED|IDENTITY_TOKEN_FILE|CONFIG_DIR)|NETRC")


def check_tracker(job: MegatronRun) -> Iterator[Finding]:
    """Warn of a run that ends as it starts, because nobody answers the question for a key."""
    if any(_GIVEN.fullmatch(name) for name in job.runtime.env):
        return
    for path, name in _asked(job):
        found = f"{name}: W&B asks for a key, no secret reaches a pod, and no terminal answers"
        remedy = "set runtime.env.WANDB_MODE: offline, and upload its folder with `wandb sync`"
        yield warning(Code.VARIABLE_MISSING, path, found, remedy)


def _asked(job: MegatronRun) -> Iterator[tuple[Path, str]]:
    if isinstance(job, MegatronBridgeJob):
        if job.overrides.get(_OVERRIDE):
            yield ("overrides", _OVERRIDE), _OVERRIDE
        return
    for index, word in enumerate(job.extra_args):
        if word.partition("=")[0] == _OPTION:
            yield ("extra_args", index), _OPTION
