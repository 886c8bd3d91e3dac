"""Rules' findings that this project accepts, each where it arises and with its reason."""

import aws_cdk as cdk
from constructs import IConstruct


def acknowledge(construct: IConstruct, reason: str, *rules: str) -> None:
    """Accept what rules report about a construct and everything in it."""
    cdk.Validations.of(construct).acknowledge(
        *(cdk.Acknowledgment(id=rule, reason=reason) for rule in rules)
    )
