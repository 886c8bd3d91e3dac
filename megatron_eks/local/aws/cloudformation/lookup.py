"""What a template's parameters refer to in the services of its region."""

from collections.abc import Callable

from botocore.exceptions import ClientError

from megatron_eks.local.aws.clients import Clients

# Type of a parameter: the operation of EC2 that knows whether there is such a thing, and how.
_ASKED = {
    "AWS::EC2::AvailabilityZone::Name": ("describe_availability_zones", "ZoneNames"),
    "AWS::EC2::KeyPair::KeyName": ("describe_key_pairs", "KeyNames"),
    "AWS::EC2::SecurityGroup::Id": ("describe_security_groups", "GroupIds"),
    "AWS::EC2::Subnet::Id": ("describe_subnets", "SubnetIds"),
    "AWS::EC2::VPC::Id": ("describe_vpcs", "VpcIds"),
}


def stored(clients: Clients, names: list[str]) -> dict[str, str]:
    """Return values of the parameter store by name, without those that are not there."""
    if not names:
        return {}
    found = clients("ssm").get_parameters(Names=names)["Parameters"]
    return {each["Name"]: each["Value"] for each in found}


def exists_in(clients: Clients) -> Callable[[str, str], bool]:
    """Return what tells whether a thing of a parameter's type is there; what nobody can ask is."""

    def exists(kind: str, value: str) -> bool:
        if kind not in _ASKED:
            return True
        operation, argument = _ASKED[kind]
        try:
            getattr(clients("ec2"), operation)(**{argument: [value]})
        except ClientError:
            return False
        return True

    return exists
