"""Which layers the stages of a pipeline divide evenly, and what divides them by hand."""

from megatron_eks.catalog.megatron_conflicts import TABLE
from megatron_eks.catalog.megatron_options import OPTIONS
from megatron_eks.catalog.models import ModelShape
from megatron_eks.config.job import MegatronBridgeJob, MegatronRun

_MOST_LISTED = 10_000

BY_HAND = frozenset(TABLE["stages_by_hand"].split())
"""Settings with which stages have other layers than the quotient."""

# Bridge's names for the first two of them.
_BRIDGE = BY_HAND | {"num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage"}
# Recipes of Megatron-Bridge 0.6 with stages of their own: megatron/bridge/recipes, by what they
# begin with. The first counts embedding and loss as a layer each (126 and 2 for 16 stages).
_WITH_ENDS = ("llama31_405b_",)
_OWN_STAGES = ("deepseek_v3_", "glm5", "glm_45v", "kimi", "moonlight_", "nemotron")


def counted_layers(job: MegatronRun, model: ModelShape) -> int | None:
    """Return the layers that stages divide evenly; None where something says which each has."""
    if isinstance(job, MegatronBridgeJob):
        blocks = (name.partition(".") for name in job.overrides)
        by_hand = any(block == "model" and field in _BRIDGE for block, _, field in blocks)
        ends = 2 * job.recipe.startswith(_WITH_ENDS)
        return None if by_hand or job.recipe.startswith(_OWN_STAGES) else model.num_layers + ends
    given = {OPTIONS.get(word.partition("=")[0]) for word in job.extra_args}
    return model.num_layers if BY_HAND.isdisjoint(given) else None


def divisors(number: int) -> str:
    """List the divisors of a number."""
    if number > _MOST_LISTED:
        return f"its divisors: {number}"
    return ", ".join(str(value) for value in range(1, number + 1) if number % value == 0)
