"""Whether options about graphs and offloading fit each other, the job and its variables.

Source: Megatron-LM, `validate_args` in megatron/training/arguments.py (core_v0.19).
"""

from collections.abc import Callable

from megatron_eks.plan.jobs.option_values import Asked, Problem


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
