"""Priority classes, and the quotas of the namespace that jobs run in."""

import cdk8s
from cdk8s_plus_27 import k8s
from constructs import Construct

from charts.pods import count
from megatron_eks.plan.platform import PlatformPlan, PriorityClassPlan, QuotaPlan


class Quotas(cdk8s.Chart):
    """Who comes first on a full node, and the most that all jobs together may hold."""

    def __init__(self, scope: Construct, chart_id: str, *, platform: PlatformPlan) -> None:
        super().__init__(scope, chart_id, disable_resource_name_hashes=True)
        for priority in platform.priority_classes:
            self._priority_class(priority)
        for quota in platform.quotas:
            self._quota(quota, platform.namespace)

    def _priority_class(self, plan: PriorityClassPlan) -> None:
        k8s.KubePriorityClass(
            self,
            plan.name,
            metadata=k8s.ObjectMeta(name=plan.name),
            value=plan.value,
            preemption_policy="PreemptLowerPriority" if plan.preempts else "Never",
            description=plan.description,
        )

    def _quota(self, plan: QuotaPlan, namespace: str) -> None:
        scope = k8s.ScopedResourceSelectorRequirement(
            scope_name="PriorityClass", operator=plan.operator, values=list(plan.classes)
        )
        selector = k8s.ScopeSelector(match_expressions=[scope]) if plan.classes else None
        k8s.KubeResourceQuota(
            self,
            f"quota-{plan.name}",
            metadata=k8s.ObjectMeta(name=plan.name, namespace=namespace),
            spec=k8s.ResourceQuotaSpec(
                hard={resource: count(limit) for resource, limit in plan.hard},
                scope_selector=selector,
            ),
        )
