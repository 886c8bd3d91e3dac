"""The rules over parts of a template that are empty, left out, or of a form that nobody takes."""

from collections.abc import Callable, Iterator

from megatron_eks.config.errors import Finding
from megatron_eks.rules.cloudformation import (
    bucket_policies,
    build_parts,
    cluster_refusals,
    exports_between,
    file_shares,
    iam_forms,
    kubelet_starts,
    placed_groups,
    policy_parts,
    prometheus,
    pushed_tags,
    single_instances,
    template_forms,
    written_ids,
)
from megatron_eks.rules.template_set import TemplateSet

PART_RULES: tuple[Callable[[TemplateSet], Iterator[Finding]], ...] = (
    bucket_policies.locked,
    cluster_refusals.missing_amis,
    build_parts.specs,
    build_parts.left_out,
    build_parts.environments,
    build_parts.readers,
    exports_between.gone,
    exports_between.circles,
    file_shares.file_systems,
    file_shares.access_points,
    file_shares.mount_targets,
    iam_forms.forms,
    kubelet_starts.kinds,
    placed_groups.without_network,
    placed_groups.left_out,
    policy_parts.emptied,
    policy_parts.conditions,
    prometheus.scrapers,
    prometheus.rule_groups,
    pushed_tags.moving,
    single_instances.images,
    template_forms.names,
    template_forms.values,
    template_forms.snapshots,
    template_forms.filled,
    written_ids.ids,
    written_ids.arns,
)
