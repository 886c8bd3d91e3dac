"""Whether options that divide the layers over pipeline stages by hand come out even.

Source: Megatron-LM, `TransformerConfig.__post_init__` and
megatron/core/transformer/pipeline_parallel_layer_layout.py (core_v0.19).
"""

import re
from collections.abc import Iterator, Mapping

from megatron_eks.catalog.megatron_options import OPTIONS
from megatron_eks.catalog.models import ModelShape
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.config.job import MegatronBridgeJob, MegatronRun
from megatron_eks.plan.jobs.options.option_checks import Option

_MOST_LISTED = 10_000


Said = Iterator[tuple[str, str, str]]
"""The setting of the option that is at fault, what was found, and what to do."""

_FIRST, _LAST = "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers"
_EMBEDDING = "account_for_embedding_in_pipeline_split"
_LOSS = "account_for_loss_in_pipeline_split"
_LAYOUT = "pipeline_model_parallel_layout"
BY_HAND = frozenset({_FIRST, _LAST, _EMBEDDING, _LOSS, _LAYOUT})
"""Settings with which stages have other layers than the quotient."""

# More is no layout of a model, and would only be long.
_MOST_REPEATED = 4
_REPEATED = re.compile(rf"\(([^)]+)\)\*(\d{{1,{_MOST_REPEATED}}})|(.)\*(\d{{1,{_MOST_REPEATED}}})")


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


def check_stages(
    job: MegatronRun, model: ModelShape, given: Mapping[int, Option]
) -> Iterator[Finding]:
    """Yield what keeps Megatron from dividing the layers as the options say."""
    options = {setting: (place, name, values) for place, (name, setting, values) in given.items()}
    # Megatron reads a layout whatever the stages; the other options say nothing to one of them.
    alone = job.parallelism.pipeline == 1 and _LAYOUT not in options
    if alone or options.keys().isdisjoint(BY_HAND):
        return
    values = {setting: (words or ("",))[0] for setting, (_, _, words) in options.items()}
    for setting, found, remedy in _problems(job, model, values):
        place, name, _ = options[setting]
        yield Finding(Code.OPTION_COMBINATION, ("extra_args", place), f"{name}: {found}", remedy)


def _problems(job: MegatronRun, model: ModelShape, values: Mapping[str, str]) -> Said:
    ends = [each for each in (_FIRST, _LAST) if each in values]
    accounts = [each for each in (_EMBEDDING, _LOSS) if each in values]
    if _LAYOUT in values and (ends or accounts):
        yield _LAYOUT, "another option divides the layers too", "keep one of the two"
    elif ends and accounts:
        yield ends[0], "another option divides the layers too", "keep one of the two"
    elif _LAYOUT in values:
        yield from _layout(job, model, values)
    elif ends:
        yield from _ends(job, model, values)
    else:
        yield from _accounts(job, model, accounts)


def _ends(job: MegatronRun, model: ModelShape, values: Mapping[str, str]) -> Said:
    """Take the first and the last stage away: the others share what is left."""
    stages, layers = job.parallelism.pipeline, model.num_layers
    chunks, setting = job.parallelism.virtual_pipeline or 1, ""
    for setting in (each for each in (_FIRST, _LAST) if each in values):
        size = int(values[setting]) if values[setting].isdecimal() else 0
        if size < 1 or size % chunks:
            found = f"{chunks} chunks do not divide {size} layers" if size else "it takes a layer"
            yield setting, found, f"use a multiple of {chunks}"
            return
        layers, stages = layers - size, stages - 1
    other = "choose sizes that leave each of the other stages as many layers as the next"
    if bool(layers > 0) != bool(stages):
        yield setting, f"{layers} layers are left for {stages} stages", other
    elif stages and layers % stages:
        yield setting, f"{stages} stages do not divide the {layers} layers that are left", other
    elif stages and (layers // stages) % chunks:
        found = f"{chunks} chunks do not divide the {layers // stages} layers of the other stages"
        yield setting, found, "change the sizes, or parallelism.virtual_pipeline"


def _accounts(job: MegatronRun, model: ModelShape, accounts: list[str]) -> Said:
    """Count embedding and loss as a layer each."""
    stages, chunks = job.parallelism.pipeline, job.parallelism.virtual_pipeline or 1
    layers = model.num_layers + len(accounts)
    if layers % stages:
        found = f"with it there are {layers} layers, which {stages} stages do not divide"
        yield accounts[0], found, "remove it, or change parallelism.pipeline"
    elif (layers // stages) % chunks:
        found = f"{chunks} chunks do not divide the {layers // stages} layers of a stage with it"
        yield accounts[0], found, "remove it, or change parallelism.virtual_pipeline"


def _layout(job: MegatronRun, model: ModelShape, values: Mapping[str, str]) -> Said:
    """Unroll a layout as Megatron does: `Et*3|(tt|)*29,m|L` names every layer of each stage."""
    words = _REPEATED.sub(lambda found: _times(*found.groups()), values[_LAYOUT].replace(",", ""))
    # What stood in parentheses may hold a repetition of its own.
    words = _REPEATED.sub(lambda found: _times(*found.groups()), words)
    parts, flat = words.split("|"), words.replace("|", "")
    stages, next_tokens = job.parallelism.pipeline, values.get("mtp_num_layers", "0")
    if set(flat) - set("ELtm"):
        wrong = min(set(flat) - set("ELtm"))
        yield _LAYOUT, f"{wrong!r} is no kind of layer", "use E, t, m, L, and | between stages"
    elif len(parts) % stages:
        found = f"{len(parts)} parts for {stages} pipeline stages"
        yield _LAYOUT, found, f"write a multiple of {stages} parts, with | between them"
    elif flat.count("t") != model.num_layers:
        found = f"{flat.count('t')} layers (t), and the model has {model.num_layers}"
        yield _LAYOUT, found, f"name {model.num_layers}"
    elif flat.count("E") != 1 or flat.count("L") != 1 or flat[0] != "E" or flat[-1] != "L":
        found = "it does not begin with the one embedding (E) and end with the one loss (L)"
        yield _LAYOUT, found, "write E first and L last, each once"
    elif next_tokens.isdecimal() and flat.count("m") != int(next_tokens):
        found = f"{flat.count('m')} layers for further tokens (m), and {next_tokens} are asked for"
        yield _LAYOUT, found, "write as many m as --mtp-num-layers says"


def _times(group: str | None, many: str | None, one: str | None, count: str | None) -> str:
    return group * int(many or 0) if group else (one or "") * int(count or 0)


def divisors(number: int) -> str:
    """List the divisors of a number."""
    if number > _MOST_LISTED:
        return f"its divisors: {number}"
    return ", ".join(str(value) for value in range(1, number + 1) if number % value == 0)
