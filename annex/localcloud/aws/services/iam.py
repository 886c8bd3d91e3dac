"""IAM's policies that AWS owns, as roles name them, and what a principal's policies allow."""

import json

from moto.core.responses import ActionResult
from moto.core.utils import utcnow
from moto.iam.access_control import IAMPolicy, PermissionResult
from moto.iam.models import AWSManagedPolicy
from moto.iam.responses import IamResponse

from megatron_eks.localcloud.aws.services.operation import ServiceError, parameters
from megatron_eks.localcloud.aws.values import Object

# The first that some policy says.
_DECISIONS = {
    PermissionResult.DENIED: "explicitDeny",
    PermissionResult.PERMITTED: "allowed",
}
# Its documents are not kept here, and those who are trusted with everything have one of these.
_ALL = ("AdministratorAccess", "PowerUserAccess")
_EVERYTHING = {"Effect": "Allow", "Action": "*", "Resource": "*"}

# Whom moto takes for the caller where nobody has made a user.
_ANYBODY = ("user", "moto")

_AWS = "arn:aws:iam::aws:policy"


class IamApi(IamResponse):
    """IAM, whose AWS policies are names without content, except those that allow everything."""

    def attach_role_policy(self) -> ActionResult:
        """AttachRolePolicy."""
        arn = parameters(self)["PolicyArn"]
        if arn.startswith(_AWS) and arn not in self.backend.managed_policies:
            path, name = arn.removeprefix(_AWS).rsplit("/", 1)
            if not _is_known(f"{path}/", name):
                raise ServiceError(
                    "NoSuchEntity", f"Policy {arn} does not exist or is not attachable."
                )
            now = utcnow().replace(tzinfo=None).isoformat()
            data = {"Path": f"{path}/", "Document": {}, "CreateDate": now, "UpdateDate": now}
            policy = AWSManagedPolicy.from_data(name, self.current_account, self.region, data)
            self.backend.managed_policies[arn] = policy
        return super().attach_role_policy()

    def simulate_principal_policy(self) -> ActionResult:
        """SimulatePrincipalPolicy, by policies alone: conditions have no say."""
        given = parameters(self)
        policies = self._policies(given)
        results = [
            {
                "EvalActionName": action,
                "EvalResourceName": resource,
                "EvalDecision": _decision(policies, action, resource),
            }
            for action in given["ActionNames"]
            for resource in given.get("ResourceArns") or ["*"]
        ]
        return ActionResult({"EvaluationResults": results, "IsTruncated": False})

    def _policies(self, given: Object) -> list[IAMPolicy]:
        kind, _, path = given["PolicySourceArn"].rpartition(":")[2].partition("/")
        name = path.rpartition("/")[2]
        if (kind, name) == _ANYBODY:
            return [IAMPolicy(json.dumps({"Statement": [_EVERYTHING]}))]
        owner = self.backend.get_role(name) if kind == "role" else self.backend.get_user(name)
        found = [IAMPolicy(each) for each in owner.policies.values()]
        for arn, policy in owner.managed_policies.items():
            if not arn.startswith(_AWS):
                found.append(IAMPolicy(policy))
            elif policy.name in _ALL:
                found.append(IAMPolicy(json.dumps({"Statement": [_EVERYTHING]})))
        return found


def _is_known(path: str, name: str) -> bool:
    """Tell whether AWS had a policy when moto's list of them was made."""
    # Here: five megabytes, for which only roles have use.
    from moto.iam.aws_managed_policies import aws_managed_policies_data as listed  # noqa: PLC0415 -- five megabytes

    start = listed.find(f'\n "{name}":{{')
    if start < 0:
        return False
    end = listed.find("\n },", start)
    own = listed[start : end if end > 0 else None]
    return f'"Path":"{path}"' in own


def _decision(policies: list[IAMPolicy], action: str, resource: str) -> str:
    found = {policy.is_action_permitted(action, resource) for policy in policies}
    return next((word for each, word in _DECISIONS.items() if each in found), "implicitDeny")
