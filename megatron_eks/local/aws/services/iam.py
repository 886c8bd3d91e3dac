"""IAM's policies that AWS owns, as roles name them."""

from moto.core.responses import ActionResult
from moto.core.utils import utcnow
from moto.iam.models import AWSManagedPolicy
from moto.iam.responses import IamResponse

from megatron_eks.local.aws.services.operation import parameters

_AWS = "arn:aws:iam::aws:policy"


class IamApi(IamResponse):
    """IAM, whose AWS policies are names without content."""

    def attach_role_policy(self) -> ActionResult:
        """AttachRolePolicy."""
        arn = parameters(self)["PolicyArn"]
        if arn.startswith(_AWS) and arn not in self.backend.managed_policies:
            path, name = arn.removeprefix(_AWS).rsplit("/", 1)
            now = utcnow().replace(tzinfo=None).isoformat()
            data = {"Path": f"{path}/", "Document": {}, "CreateDate": now, "UpdateDate": now}
            policy = AWSManagedPolicy.from_data(name, self.current_account, self.region, data)
            self.backend.managed_policies[arn] = policy
        return super().attach_role_policy()
