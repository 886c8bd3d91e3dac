"""Quotas of EC2, which moto lacks: as large as anybody may want, until one is set."""

from moto.core.responses import ActionResult
from moto.servicequotas.responses import ServiceQuotasResponse

from megatron_eks.localcloud.aws.services.operation import kept, parameters
from megatron_eks.localcloud.aws.values import Value

_PLENTY = 100_000.0


class QuotasApi(ServiceQuotasResponse):
    """Service Quotas, where a request for another value is granted at once."""

    def get_service_quota(self) -> Value:
        """GetServiceQuota."""
        given, quotas = parameters(self), kept(self.backend, "quotas")
        if given["ServiceCode"] != "ec2" and given["QuotaCode"] not in quotas:
            return super().get_service_quota()
        value = quotas.get(given["QuotaCode"], _PLENTY)
        return ActionResult({"Quota": {**given, "Value": value, "Adjustable": True}})

    def request_service_quota_increase(self) -> ActionResult:
        """RequestServiceQuotaIncrease; a smaller value is granted too, to rehearse with."""
        given = parameters(self)
        kept(self.backend, "quotas")[given["QuotaCode"]] = float(given["DesiredValue"])
        request = {**given, "Id": given["QuotaCode"], "Status": "APPROVED"}
        return ActionResult({"RequestedQuota": request})
