"""Rule over Weights & Biases on a command line: whether a rank can log in without a terminal."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.jobs.repeated_flags import words_of
from megatron_eks.rules.values import items, mapping
from megatron_eks.rules.workloads import Container, Manifest, Pod

_TO_WANDB = frozenset({"--report_to", "--report-to", "--log_with", "--log-with"})
# Each of these gives a key, or needs none.
_GIVEN = re.compile(r"WANDB_(API_KEY|MODE|DISABLED|IDENTITY_TOKEN_FILE|CONFIG_DIR)|HOME|NETRC")
_LOGS_IN = re.compile(r"wandb\s+(login|offline|disabled|off)|WANDB_|netrc|wandb[_-]?mode|secret")


def wandb_keys(manifest: Manifest) -> Iterator[Finding]:
    """Warn of Weights & Biases without a key: the rank that logs ends as it starts.

    Weights & Biases, "Environment variables", WANDB_API_KEY and WANDB_MODE, and
    unslothai/unsloth, issue 1914: "api_key not configured (no-tty)". The image may hold a key.
    """
    for pod in manifest.pods if manifest.is_job else ():
        if _has_secrets(pod):
            continue
        for container in pod.containers:
            for path, word, after in words_of(container) if not _can(container) else ():
                flag, _, given = word.partition("=")
                value = (given or after).strip("\"'")
                meant = flag == "--wandb-project" or (flag in _TO_WANDB and value == "wandb")
                if meant and value and not value.startswith("-"):
                    found = f"{flag} {value}, and no key: W&B asks for one, and no terminal answers"
                    remedy = "add WANDB_API_KEY by secretKeyRef, or WANDB_MODE=offline"
                    yield Finding(Code.VARIABLE_MISSING, path, found, remedy, Level.WARNING)
                    break


def _can(container: Container) -> bool:
    """Tell whether something in the container may log in."""
    named = any(_GIVEN.fullmatch(each.name) for each in container.variables)
    return named or "envFrom" in container.body or _LOGS_IN.search(container.line) is not None


def _has_secrets(pod: Pod) -> bool:
    """Tell whether a volume brings what nobody sees here."""
    kinds = ("secret", "projected", "csi")
    volumes = [mapping(each) or {} for each in items(pod.spec.get("volumes")) or []]
    return any(kind in each for each in volumes for kind in kinds)
