"""Every rule there is: pure functions, each with its reason and source in its docstring."""

from collections.abc import Callable, Iterator

from megatron_eks.config.errors import Finding
from megatron_eks.rules import (
    capacity,
    clusters,
    interfaces,
    lustre,
    lustre_ports,
    node_groups,
    pod_addresses,
    pod_fields,
    pod_roles,
    pods,
    pytorch_jobs,
    rendezvous,
    security_groups,
    variables,
)
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.workloads import Manifest

TEMPLATE_RULES: tuple[Callable[[TemplateSet], Iterator[Finding]], ...] = (
    interfaces.efa_layout,
    interfaces.security_groups,
    interfaces.public_address,
    node_groups.managed_nodes,
    node_groups.sizes,
    node_groups.instance_type_names,
    node_groups.ami_types,
    node_groups.one_subnet,
    pod_addresses.max_pods,
    capacity.metadata_service,
    capacity.reservations,
    capacity.capacity_blocks,
    security_groups.protocol_names,
    security_groups.efa_self_rules,
    lustre_ports.lustre_ports,
    lustre.retained,
    lustre.settings,
    lustre.data_repositories,
    clusters.endpoint,
    clusters.versions,
    clusters.addon_names,
    pod_roles.every_bucket,
)

MANIFEST_RULES: tuple[Callable[[Manifest], Iterator[Finding]], ...] = (
    pytorch_jobs.containers,
    pytorch_jobs.replicas,
    pytorch_jobs.same_pods,
    pytorch_jobs.lifecycle,
    pytorch_jobs.names,
    rendezvous.processes,
    rendezvous.rendezvous_flags,
    variables.refused_variables,
    variables.secrets,
    variables.duplicate_variables,
    pods.quantities,
    pods.extended_resources,
    pods.memory_volumes,
    pods.pinned_images,
    pods.host_network_dns,
    pods.efa_requested,
    pod_fields.labels,
    pod_fields.mounts,
    pod_fields.names,
    pod_fields.resources,
)
