"""Whether options about experts, graphs and offloading fit the model, the layout and the plan.

Source: Megatron-LM, `TransformerConfig.__post_init__` (core_v0.19).
"""

from megatron_eks.plan.jobs.options.values import Asked, Check, Problem, when

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


def _dispatch(asked: Asked) -> Problem | None:
    other = {_OVERLAP, "delay_wgrad_compute"} & asked.values.keys()
    if not other:
        return None
    return f"--{min(other).replace('_', '-')} hides the same time", "keep one of the two"


def _losses(asked: Asked) -> Problem | None:
    """Judge several auxiliary losses, each of which has a coefficient (TransformerConfig)."""
    losses = len(asked.values["moe_router_load_balancing_type"])
    numbers = len(asked.values.get("moe_aux_loss_coeff", ("0.01",)))
    if losses == numbers:
        return None
    found = f"{losses} losses, and {numbers} coefficients"
    return found, f"give --moe-aux-loss-coeff {losses} numbers, one for each"


_PADDING = when(
    lambda asked: asked.job.training.precision != "fp8" and "fp4" not in asked.values,
    "nothing is computed in FP8",
    "set training.precision: fp8, or remove it",
)
_BESIDE_OVERLAP = when(
    lambda asked: _OVERLAP not in asked.values,
    "it takes --overlap-moe-expert-parallel-comm beside it",
    "add --overlap-moe-expert-parallel-comm, or remove this one",
)
OF_EXPERTS: dict[str, Check] = {
    "delay_wgrad_compute": _BESIDE_OVERLAP,
    "ep_overlap_early_attn_memory_release": _BESIDE_OVERLAP,
    "moe_flex_dispatcher_backend": when(
        lambda asked: asked.first("moe_flex_dispatcher_backend") == "ncclep",
        "the plan's dispatcher is alltoall, and ncclep is one of flex",
        "remove it",
    ),
    "moe_layer_recompute": when(
        lambda asked: asked.job.training.recompute == "full",
        "all layers are computed again already",
        "remove it",
    ),
    "moe_aux_loss_coeff": when(
        lambda asked: (
            len(asked.values["moe_aux_loss_coeff"]) > 1
            and "moe_router_load_balancing_type" not in asked.values
        ),
        "there is one loss, aux_loss",
        "give one number, or add --moe-router-load-balancing-type",
    ),
    "moe_router_enable_expert_bias": when(
        lambda asked: asked.first("moe_router_score_function") not in _SCORES_WITH_BIAS,
        "a bias chooses experts by sigmoid or sqrtsoftplus scores, and softmax is the default",
        "add --moe-router-score-function sigmoid, or remove it",
    ),
    "moe_router_load_balancing_type": _losses,
    "moe_router_group_topk": _router_groups,
    "moe_router_padding_for_fp8": _PADDING,
    "moe_router_padding_for_quantization": _PADDING,
    "moe_single_grouped_bias": when(
        lambda asked: not asked.model.add_bias_linear,
        "the model has no biases",
        "remove it, or set model.add_bias_linear: true",
    ),
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


OF_MEMORY: dict[str, Check] = {
    "cuda_graph_impl": _graphs,
    "cuda_graph_modules": _graph_modules,
    "enable_cuda_graph": _old_graphs,
    "external_cuda_graph": _old_graphs,
    "fine_grained_activation_offloading": _offloading,
}
"""What is judged of each setting."""
