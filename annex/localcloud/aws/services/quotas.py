"""Quotas of EC2, which moto lacks: as large as anybody may want."""

from moto.core.responses import ActionResult
from moto.servicequotas.responses import ServiceQuotasResponse

from megatron_eks.localcloud.aws.services.operation import parameters
from megatron_eks.localcloud.aws.values import Value

_PLENTY = 100_000.0


class QuotasApi(ServiceQuotasResponse):
    """Service Quotas, where nobody needs another value."""

    def get_service_quota(self) -> Value:
        """GetServiceQuota."""
        given = parameters(self)
        if given["ServiceCode"] != "ec2":
            return super().get_service_quota()
        return ActionResult({"Quota": {**given, "Value": _PLENTY, "Adjustable": True}})
