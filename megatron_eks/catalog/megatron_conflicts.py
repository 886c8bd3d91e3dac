"""Options of Megatron-LM that cannot stand beside those that a plan sets, each with its reason.

Names are settings of `megatron_options.OPTIONS`.
"""

from typing import NamedTuple

from megatron_eks.catalog.tables import by_name, entries, sections


class Conflict(NamedTuple):
    """Why an option is refused, and what to do instead."""

    reason: str
    instead: str


TABLE = sections("megatron_conflicts.txt")


def _conflicts(section: str) -> dict[str, Conflict]:
    return {
        name: Conflict(reason, instead or "remove it")
        for name, said in by_name(TABLE[section]).items()
        for reason, _, instead in [said.partition(" | ")]
    }


ALWAYS = _conflicts("always")
OF_PLAN = {name: reason for name, (reason, _) in _conflicts("of_plan").items()}
"""What speaks against some values of settings that the plan gives every run, by SETTING=VALUE."""

CHOSEN = frozenset(TABLE["chosen"].split())
"""Settings of which the plan has a default, and a job the choice: nothing is planned with them."""

OF_FAULTS = ("fault_injector_", "error_injection_")
"""Settings that break a run on purpose, by their beginning."""
BREAKS = Conflict("it breaks the run on purpose", "remove it, unless the breaking is the test")

TRIALS = _conflicts("trials")
"""Settings for trials, each with what it makes of a run."""

PARTIAL = frozenset({"ignore_all", "log_all"})
"""Values of `dist_ckpt_strictness` with which a checkpoint may miss weights."""
RANDOM = Conflict("what a checkpoint lacks stays random, and nothing stops", "remove it")

SOMETIMES = _conflicts("sometimes")
"""Settings that are refused in some jobs."""

IDLE = _conflicts("idle")
"""Settings that Megatron takes, and what then happens."""

FLEX_BETWEEN_NODES = Conflict(
    OF_PLAN["moe_token_dispatcher_type=flex"], "use alltoall, or an image that has them for EFA"
)

OF_BRIDGE = dict(entries(TABLE["bridge"]))
"""Settings by their names in Megatron-Bridge, NAME or NAME=VALUE."""

WRITTEN = frozenset(TABLE["written"].split())
"""Settings that say where a run writes."""
WRITTEN_BY_BRIDGE = frozenset(TABLE["written_by_bridge"].split())
"""The same by their names in Megatron-Bridge."""

DIVISORS = tuple(TABLE["divisors"].split())
"""Settings that Megatron divides by."""
