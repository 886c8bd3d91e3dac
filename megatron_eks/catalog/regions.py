"""AWS regions, and the partition that ARNs of each belong to.

Source: AWS General Reference, "AWS regions and endpoints", read 2026-11. Which instance types a
zone offers changes too often for a table; EC2 alone knows. A region gets and loses them seldom.
"""

COMMERCIAL = (
    *("af-south-1", "ap-east-1", "ap-east-2", "ap-northeast-1", "ap-northeast-2", "ap-northeast-3"),
    *("ap-south-1", "ap-south-2", "ap-southeast-1", "ap-southeast-2", "ap-southeast-3"),
    *("ap-southeast-4", "ap-southeast-5", "ap-southeast-6", "ap-southeast-7"),
    *("ca-central-1", "ca-west-1", "eu-central-1", "eu-central-2", "eu-north-1", "eu-south-1"),
    *("eu-south-2", "eu-west-1", "eu-west-2", "eu-west-3", "il-central-1", "me-central-1"),
    *("me-south-1", "mx-central-1", "sa-east-1", "us-east-1", "us-east-2", "us-west-1"),
    "us-west-2",
)
GOVERNMENT = ("us-gov-east-1", "us-gov-west-1")

PARTITIONS: dict[str, str] = {
    **dict.fromkeys(COMMERCIAL, "aws"),
    **dict.fromkeys(GOVERNMENT, "aws-us-gov"),
}

ZONE_LETTERS: dict[str, str] = {
    **dict.fromkeys(
        (
            *("us-east-2", "us-west-1", "eu-west-1", "eu-west-2", "eu-west-3", "eu-central-1"),
            *("eu-north-1", "eu-south-1", "ap-southeast-1", "ap-southeast-2", "ap-south-1"),
            *("ap-northeast-3", "sa-east-1"),
        ),
        "abc",
    ),
    **dict.fromkeys(("us-west-2", "ap-northeast-1", "ap-northeast-2", "ca-central-1"), "abcd"),
    "us-east-1": "abcdef",
}
"""Letters that zones have in an account, of the regions with GPUs; an account may have fewer.

Source: AWS Global Infrastructure, "Regions and Availability Zones", read 2026-11.
"""

ZONES_WITHOUT_EKS: dict[str, str] = {"us-east-1e": "use1-az3"}
"""Zones that EKS takes no subnet of, by their names in nearly all accounts, with their ids.

Source: EKS User Guide, "View Amazon EKS networking requirements for VPC and subnets" (the ids);
eksctl issues 817 and 3816 (the name).
"""

OFFERED_IN: dict[str, frozenset[str]] = {
    family: frozenset(regions.split())
    for family, regions in {
        "g5": (
            "ap-east-1 ap-northeast-1 ap-northeast-2 ap-south-1 ap-southeast-2 "
            "ap-southeast-3 ca-central-1 eu-central-1 eu-north-1 eu-south-2 eu-west-1 "
            "eu-west-2 eu-west-3 il-central-1 me-central-1 sa-east-1 us-east-1 us-east-2 "
            "us-west-2"
        ),
        "g6": (
            "ap-northeast-1 ap-northeast-2 ap-south-1 ap-south-2 ap-southeast-2 "
            "ap-southeast-5 ca-central-1 eu-central-1 eu-central-2 eu-north-1 eu-south-2 "
            "eu-west-2 eu-west-3 me-central-1 sa-east-1 us-east-1 us-east-2 us-gov-east-1 "
            "us-gov-west-1 us-west-2"
        ),
        "g6e": (
            "ap-northeast-1 ap-northeast-2 ap-northeast-3 ap-south-1 ap-south-2 "
            "eu-central-1 eu-north-1 eu-south-2 me-central-1 us-east-1 us-east-2 us-west-2"
        ),
        "g7e": (
            "ap-northeast-1 ap-northeast-2 ap-south-1 ap-southeast-3 ap-southeast-5 "
            "eu-central-1 eu-north-1 eu-south-2 eu-west-2 us-east-1 us-east-2 us-west-2"
        ),
        "p4d": (
            "ap-northeast-1 ap-northeast-2 ap-south-1 ap-southeast-1 ap-southeast-2 "
            "ca-central-1 eu-central-1 eu-north-1 eu-west-1 eu-west-2 sa-east-1 us-east-1 "
            "us-east-2 us-gov-west-1 us-west-2"
        ),
        "p4de": ("ap-northeast-1 ap-southeast-1 eu-central-1 il-central-1 us-east-1 us-west-2"),
        "p5": (
            "ap-northeast-1 ap-northeast-2 ap-south-1 ap-southeast-2 ap-southeast-3 "
            "ca-central-1 eu-north-1 eu-west-2 sa-east-1 us-east-1 us-east-2 us-gov-west-1 "
            "us-west-1 us-west-2"
        ),
        "p5e": "us-east-2",
        "p5en": (
            "ap-northeast-1 ap-northeast-2 ap-south-1 ap-southeast-3 eu-north-1 eu-south-2 "
            "me-central-1 us-east-1 us-east-2 us-gov-west-1 us-west-1 us-west-2"
        ),
        "p6-b200": (
            "ap-south-1 ap-south-2 eu-north-1 eu-west-3 us-east-1 us-east-2 us-gov-east-1 "
            "us-gov-west-1 us-west-2"
        ),
        "p6-b300": (
            "ap-northeast-2 ap-south-2 ap-southeast-3 eu-west-2 sa-east-1 us-east-1 "
            "us-gov-east-1 us-west-2"
        ),
    }.items()
}
"""Regions whose price list has a family on demand; blocks and reservations may be elsewhere.

Source: EC2's price lists, as cfn-lint 1.58 carries them (AWS::EC2::Instance, InstanceType).
"""
