"""Quotas of EC2, which moto lacks: as large as anybody may want, until one is set."""

from moto.core.responses import ActionResult
from moto.servicequotas.responses import ServiceQuotasResponse

from megatron_eks.localcloud.aws.services.operation import kept, parameters
from megatron_eks.localcloud.aws.values import Object, Value

_PLENTY = 100_000.0


class QuotasApi(ServiceQuotasResponse):
    """Service Quotas, where a request for another value is granted at once."""

    def get_service_quota(self) -> Value:
        """GetServiceQuota."""
        given = parameters(self)
        if given["ServiceCode"] != "ec2" and given["QuotaCode"] not in self._set():
            return super().get_service_quota()
        return ActionResult({"Quota": self._quota(given)})

    def request_service_quota_increase(self) -> ActionResult:
        """RequestServiceQuotaIncrease; a smaller value is granted too, to rehearse with."""
        given = parameters(self)
        self._set()[given["QuotaCode"]] = float(given["DesiredValue"])
        request = {**given, "Id": given["QuotaCode"], "Status": "APPROVED"}
        return ActionResult({"RequestedQuota": request})

    def _quota(self, given: Object) -> Object:
        value = self._set().get(given["QuotaCode"], _PLENTY)
        return {**given, "Value": value, "Adjustable": True}

    def _set(self) -> Object:
        return kept(self.backend, "quotas")
