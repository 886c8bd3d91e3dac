"""Whether options about experts, graphs and offloading fit the model, the layout and the plan.

Source: Megatron-LM, `TransformerConfig.__post_init__` (core_v0.19).
"""

from collections.abc import Callable

from megatron_eks.plan.jobs.value_checks import Asked, Problem

_OVERLAP = "overlap_moe_expert_parallel_comm"
# Scores of which a bias can choose experts without a say in their weights.
_SCORES_WITH_BIAS = frozenset({"sigmoid", "sqrtsoftplus"})


def _router_groups(asked: Asked) -> Problem | None:
    groups, experts = asked.number("moe_router_num_groups"), asked.model.num_experts or 0
    chosen = asked.number("moe_router_group_topk")
    if chosen is None:
        return "it takes no number below 0", "use 1 or more, or remove it"
    if chosen == 0:
        return None
    if not groups:
        return "it takes --moe-router-num-groups beside it", "add it, or remove this one"
    if experts % groups:
        return f"{groups} groups do not divide {experts} experts", "use a divisor of the experts"
    if chosen > groups:
        return f"each token goes to {chosen} of {groups} groups", f"use at most {groups}"
    return None


def _bias(asked: Asked) -> Problem | None:
    if asked.first("moe_router_score_function") in _SCORES_WITH_BIAS:
        return None
    reason = "a bias chooses experts by sigmoid or sqrtsoftplus scores, and softmax is the default"
    return reason, "add --moe-router-score-function sigmoid, or remove it"


def _overlap(asked: Asked) -> Problem | None:
    parallelism = asked.job.parallelism
    if parallelism.expert == 1:
        return "no experts are spread over ranks", "set parallelism.expert, or remove it"
    if parallelism.pipeline > 1 and (parallelism.virtual_pipeline or 1) == 1:
        remedy = "set parallelism.virtual_pipeline, or remove it"
        return "pipeline stages need interleaving for it", remedy
    if asked.job.training.recompute == "full":
        return "it does not go with full recomputing", "set training.recompute: selective"
    if "moe_shared_expert_overlap" in asked.values:
        return "--moe-shared-expert-overlap hides the same time", "keep one of the two"
    return None


def _beside_overlap(asked: Asked) -> Problem | None:
    if _OVERLAP in asked.values:
        return None
    option = "--overlap-moe-expert-parallel-comm"
    return f"it takes {option} beside it", f"add {option}, or remove this one"


def _dispatch(asked: Asked) -> Problem | None:
    other = {_OVERLAP, "delay_wgrad_compute"} & asked.values.keys()
    if not other:
        return None
    return f"--{min(other).replace('_', '-')} hides the same time", "keep one of the two"


def _padding(asked: Asked) -> Problem | None:
    if asked.job.training.precision == "fp8" or "fp4" in asked.values:
        return None
    return "nothing is computed in FP8", "set training.precision: fp8, or remove it"


def _recomputing(asked: Asked) -> Problem | None:
    if asked.job.training.recompute != "full":
        return None
    return "all layers are computed again already", "remove it"


def _backend(asked: Asked) -> Problem | None:
    if asked.first("moe_flex_dispatcher_backend") != "ncclep":
        return None
    return "the plan's dispatcher is alltoall, and ncclep is one of flex", "remove it"


def _group_bias(asked: Asked) -> Problem | None:
    if asked.model.add_bias_linear:
        return None
    return "the model has no biases", "remove it, or set model.add_bias_linear: true"


def _losses(asked: Asked) -> Problem | None:
    """Judge several auxiliary losses, each of which has a coefficient (TransformerConfig)."""
    losses = len(asked.values["moe_router_load_balancing_type"])
    numbers = len(asked.values.get("moe_aux_loss_coeff", ("0.01",)))
    if losses == numbers:
        return None
    found = f"{losses} losses, and {numbers} coefficients"
    return found, f"give --moe-aux-loss-coeff {losses} numbers, one for each"


def _coefficients(asked: Asked) -> Problem | None:
    several = len(asked.values["moe_aux_loss_coeff"]) > 1
    if not several or "moe_router_load_balancing_type" in asked.values:
        return None
    return "there is one loss, aux_loss", "give one number, or add --moe-router-load-balancing-type"


OF_EXPERTS: dict[str, Callable[[Asked], Problem | None]] = {
    "delay_wgrad_compute": _beside_overlap,
    "ep_overlap_early_attn_memory_release": _beside_overlap,
    "moe_flex_dispatcher_backend": _backend,
    "moe_layer_recompute": _recomputing,
    "moe_aux_loss_coeff": _coefficients,
    "moe_router_enable_expert_bias": _bias,
    "moe_router_load_balancing_type": _losses,
    "moe_router_group_topk": _router_groups,
    "moe_router_padding_for_fp8": _padding,
    "moe_router_padding_for_quantization": _padding,
    "moe_single_grouped_bias": _group_bias,
    "overlap_dispatch_backward_with_experts_wgrad": _dispatch,
    _OVERLAP: _overlap,
}
"""What is judged of each setting."""


# Source: Megatron-LM, `validate_args` in megatron/training/arguments.py (core_v0.19).
def _graphs(asked: Asked) -> Problem | None:
    kind = asked.first("cuda_graph_impl")
    if kind == "none":
        return None
    full = asked.job.training.recompute == "full"
    if kind == "full_iteration" and "check_for_nan_in_loss_and_grad" not in asked.values:
        remedy = "add --no-check-for-nan-in-loss-and-grad, or use another implementation"
        return "a graph of a whole iteration cannot look for NaN in between", remedy
    if kind == "full_iteration" and "cuda_graph_modules" in asked.values:
        return "a graph of a whole iteration has no modules", "remove --cuda-graph-modules"
    if kind in {"local", "transformer_engine"} and full:
        return (
            "graphs of parts do not go with full recomputing",
            "set training.recompute: selective",
        )
    if kind != "full_iteration" and "cpu_offloading_num_layers" in asked.values:
        return "graphs of parts do not go with CPU offloading", "remove one of the two"
    return _drawn(asked)


def _drawn(asked: Asked) -> Problem | None:
    """Judge attention that is computed again: a graph draws other numbers for its dropout."""
    modules = asked.values.get("cuda_graph_modules", ())
    again = asked.job.training.recompute == "selective"
    if not again or not asked.model.attention_dropout or (modules and "attn" not in modules):
        return None
    return (
        "attention with dropout is not computed again in a graph",
        "set model.attention_dropout: 0.0 or training.recompute: none",
    )


def _old_graphs(asked: Asked) -> Problem | None:
    if "cuda_graph_impl" in asked.values:
        return "--cuda-graph-impl says which graphs already", "remove this one"
    if {"enable_cuda_graph", "external_cuda_graph"} <= asked.values.keys():
        return "two kinds of graphs are asked for", "keep one of the two"
    if asked.job.training.recompute == "full":
        return (
            "graphs of parts do not go with full recomputing",
            "set training.recompute: selective",
        )
    return _drawn(asked)


def _graph_modules(asked: Asked) -> Problem | None:
    modules = set(asked.values["cuda_graph_modules"])
    experts = {each for each in modules if each.startswith("moe")}
    if experts and asked.model.num_experts is None:
        return f"{min(experts)}: the model has no experts", "use attn or mlp"
    if {"moe", "moe_router"} <= modules:
        return "moe holds moe_router already", "keep one of the two"
    return None


def _offloading(asked: Asked) -> Problem | None:
    modules = set(asked.values.get("offload_modules", ()))
    if not modules:
        return "it takes --offload-modules beside it", "name modules, such as core_attn attn_proj"
    if "attn_proj" in modules and "core_attn" not in modules:
        return "attn_proj needs what core_attn gives", "add core_attn to --offload-modules"
    # Transformer Engine 2.10 and later offloads weights too unless it is told.
    if asked.job.runtime.env.get("NVTE_CPU_OFFLOAD_V1") != "1":
        return (
            "Megatron stops without NVTE_CPU_OFFLOAD_V1",
            "set runtime.env.NVTE_CPU_OFFLOAD_V1: '1'",
        )
    return None


OF_MEMORY: dict[str, Callable[[Asked], Problem | None]] = {
    "cuda_graph_impl": _graphs,
    "cuda_graph_modules": _graph_modules,
    "enable_cuda_graph": _old_graphs,
    "external_cuda_graph": _old_graphs,
    "fine_grained_activation_offloading": _offloading,
}
"""What is judged of each setting."""
