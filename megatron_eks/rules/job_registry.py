"""The rules over jobs of several operators, and over the scripts and ranks in their pods."""

from collections.abc import Callable, Iterator

from megatron_eks.config.errors import Finding
from megatron_eks.rules import (
    endings,
    gangs,
    image_tags,
    job_upkeep,
    kueue,
    lone_ranks,
    mounted_keys,
    mpi_jobs,
    mpi_variables,
    operator_fields,
    option_values,
    rank_names,
    ray_clusters,
    replicated_jobs,
    service_meshes,
    shell_scripts,
    shell_words,
    static_claims,
    train_jobs,
    unasked_gpus,
)
from megatron_eks.rules.manifest_set import Found, ManifestSet
from megatron_eks.rules.workloads import Manifest

OF_ONE: tuple[Callable[[Manifest], Iterator[Finding]], ...] = (
    operator_fields.fields,
    option_values.values,
    replicated_jobs.names,
    replicated_jobs.jobs_inside,
    replicated_jobs.runtimes,
    train_jobs.trainers,
    shell_words.unexpanded,
    shell_words.dropped,
    shell_words.for_shells,
    shell_scripts.continued,
    shell_scripts.ends,
    endings.first_steps,
    job_upkeep.never_pulled,
    job_upkeep.of_the_system,
    kueue.placed,
    rank_names.names,
    rank_names.alone,
    rank_names.counted,
    rank_names.made_in_order,
    ray_clusters.groups,
    ray_clusters.jobs,
    ray_clusters.versions,
    ray_clusters.plain_tokens,
    image_tags.of_nvidia,
    gangs.members,
    gangs.policies,
    gangs.plugins,
    mpi_variables.handed_on,
    mpi_jobs.workers,
    mpi_jobs.gpus_of_ranks,
    rank_names.no_numbers,
    unasked_gpus.gpus,
)

OF_SETS: tuple[Callable[[ManifestSet], Iterator[Found]], ...] = (
    train_jobs.runtime_kinds,
    train_jobs.targets,
    gangs.groups,
    rank_names.unready_names,
    service_meshes.proxies,
    lone_ranks.ranks,
    mounted_keys.keys,
    static_claims.classes,
)
