"""The certificates that jobs trust, as a file for their pods."""

import cdk8s
from cdk8s_plus_27 import k8s
from constructs import Construct

from charts.pods import CA_BUNDLE
from megatron_eks.plan.egress import CA_FILE
from megatron_eks.plan.platform import PlatformPlan


class Certificates(cdk8s.Chart):
    """A ConfigMap in the namespace of the jobs."""

    def __init__(self, scope: Construct, chart_id: str, *, platform: PlatformPlan) -> None:
        super().__init__(scope, chart_id, disable_resource_name_hashes=True)
        k8s.KubeConfigMap(
            self,
            CA_BUNDLE,
            metadata=k8s.ObjectMeta(name=CA_BUNDLE, namespace=platform.namespace),
            data={CA_FILE: platform.egress.ca_bundle or ""},
        )
