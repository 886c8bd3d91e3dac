"""The rules over what a cluster's platform is made of: node sources, plugins, queues, monitors."""

from collections.abc import Callable, Iterator

from megatron_eks.config.errors import Finding
from megatron_eks.rules import (
    autoscaler,
    class_choice,
    cluster_services,
    dcgm,
    eksctl,
    gpu_operator,
    karpenter,
    karpenter_fits,
    karpenter_labels,
    kueue,
    kueue_taints,
    monitors,
    mounted_files,
    node_roles,
    object_parts,
    plugin_configs,
    policy_ports,
    pool_fits,
    service_ports,
    volcano,
    volume_zones,
)
from megatron_eks.rules.manifest_set import Found, ManifestSet
from megatron_eks.rules.workloads import Manifest

MANIFEST_RULES: tuple[Callable[[Manifest], Iterator[Finding]], ...] = (
    object_parts.role_kinds,
    karpenter.node_pools,
    karpenter.room,
    karpenter.node_classes,
    plugin_configs.of_the_plugin,
    plugin_configs.of_the_mig_manager,
    plugin_configs.of_the_type,
    gpu_operator.settings,
    kueue.borrowing,
    volcano.amounts,
    eksctl.cluster_files,
    eksctl.efa_groups,
    node_roles.maps,
    autoscaler.arguments,
    karpenter_labels.gone,
    karpenter_labels.node_marks,
    karpenter_fits.architectures,
    karpenter_fits.start_scripts,
    dcgm.ports,
    dcgm.fields,
    class_choice.bound_at_once,
    mounted_files.log_folders,
)

SET_RULES: tuple[Callable[[ManifestSet], Iterator[Found]], ...] = (
    policy_ports.labelled_namespaces,
    karpenter.classes,
    karpenter_fits.reserved,
    karpenter_fits.addresses,
    pool_fits.agents,
    pool_fits.labels,
    gpu_operator.configs,
    gpu_operator.second_plugin,
    gpu_operator.features,
    monitors.monitors,
    kueue.namespaces,
    volcano.groups,
    volume_zones.zones,
    service_ports.numbers,
    kueue_taints.untolerated,
    cluster_services.loops,
    cluster_services.networks_of_pods,
    class_choice.defaults,
    class_choice.names,
)
