"""The stacks of one cluster, in the order of their needs, and what the CDK refuses."""

import json
from collections.abc import Sequence
from pathlib import Path

import aws_cdk as cdk

from megatron_eks.config.errors import Finding
from megatron_eks.guards.codes import Rule
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.stacks.base import BaseStack, Place, existing_place
from megatron_eks.stacks.cluster import ClusterStack
from megatron_eks.stacks.images import PlannedImages
from megatron_eks.stacks.network import PlannedNetwork
from megatron_eks.stacks.pod_roles import associate
from megatron_eks.stacks.storage import PlannedStorage


def build(app: cdk.App, plan: ClusterPlan, checkout: Path, folder: Path = Path()) -> None:
    """Add every stack of a cluster to an app; images are built from the checkout.

    The user's own images are built from folders below that of the cluster file.
    """
    made = "Network" in plan.stacks
    place = existing_place(plan.network)
    nat_gateways: dict[str, str] = {}
    # Constructs called `Default` are no part of logical ids.
    if made:
        network = BaseStack(app, plan, "Network", "Network")
        planned = PlannedNetwork(network, "Default", plan=plan)
        place, nat_gateways = planned.place, planned.nat_gateways
    lasting = BaseStack(app, plan, "Storage", "File system and data bucket")
    storage = PlannedStorage(lasting, "Default", plan=plan, place=place)
    images = BaseStack(app, plan, "Images", "Container images")
    PlannedImages(images, "Default", plan=plan, checkout=checkout, folder=folder)
    cluster: ClusterStack | None = None
    if place is not None and "Cluster" in plan.stacks:
        cluster = ClusterStack(app, plan, place, storage.job_role_arns)
    else:
        associate(lasting, plan, cluster=plan.eks_name, roles=storage.job_role_arns)
    if plan.observability is not None:
        # Not before: its parts of the CDK take time to load.
        from megatron_eks.stacks.observability import ObservabilityStack  # noqa: PLC0415 -- as above

        watch = ObservabilityStack(
            app,
            plan,
            plan.observability,
            place=place,
            security_groups=_security_groups(cluster, place),
            file_systems=storage.file_systems,
            nat_gateways=nat_gateways,
        )
        if cluster is not None:
            watch.add_stack_dependency(cluster)


def _security_groups(cluster: ClusterStack | None, place: Place | None) -> Sequence[str]:
    """Return those of a scraper; one of the user's own needs none, where no VPC is named."""
    if cluster is not None:
        return cluster.security_groups
    return [] if place is None else [place.node_security_group]


def refused_by_schema(outdir: Path) -> list[Finding]:
    """Return what CloudFormation's schemas refuse, from the report that stays beside the templates.

    One value of the cluster file may be on every resource, and is told once.
    """
    report = json.loads((outdir / "validation-report.json").read_text())
    found: dict[str, Finding] = {}
    for plugin in report["pluginReports"]:
        for violation in plugin["violations"]:
            for construct in violation["violatingConstructs"]:
                resource = construct.get("cloudFormationResource", {})
                places = resource.get("propertyPaths") or ["Properties"]
                path = ("Resources", resource.get("logicalId", "?"), *places[0].split("."))
                what = f"CloudFormation's schema refuses it: {violation['description']}"
                finding = Finding(Rule.PROPERTY, path, what, "change the value it comes from")
                file = str(outdir / resource.get("templatePath", ""))
                # One value of the cluster file may be on every resource.
                found.setdefault(violation["description"], finding.at(file, 0))
    return list(found.values())
