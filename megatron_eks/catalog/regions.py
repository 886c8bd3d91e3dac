"""AWS regions, and the partition that ARNs of each belong to.

Source: AWS General Reference, "AWS regions and endpoints", read 2026-11. Which instance types a
zone offers changes too often for a table; EC2 alone knows.
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
