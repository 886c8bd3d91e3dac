"""AWS regions, and the partition that ARNs of each belong to.

Which instance types a zone offers changes too often for a table; EC2 alone knows. A region gets and
loses them seldom.
"""

from megatron_eks.catalog.tables import entries, sections

_TABLE = sections("regions.txt")

COMMERCIAL = tuple(_TABLE["aws"].split())
GOVERNMENT = tuple(_TABLE["aws_us_gov"].split())

PARTITIONS: dict[str, str] = {
    **dict.fromkeys(COMMERCIAL, "aws"),
    **dict.fromkeys(GOVERNMENT, "aws-us-gov"),
}

ZONE_LETTERS = {
    region: letters for letters, regions in entries(_TABLE["zones"]) for region in regions.split()
}
"""Letters that zones have in an account, of the regions with GPUs; an account may have fewer."""

EKS_REGISTRY = "602401143452"
"""The account in whose registry of a region EKS keeps its own images; some regions have others."""
EKS_REGISTRIES = dict(entries(_TABLE["registries"]))

INTERFACE_ENDPOINTS = tuple(_TABLE["endpoints"].split())
OTHER_ENDPOINTS = dict(entries(_TABLE["other_endpoints"]))
"""What to do about what people call them, or expect beside them."""
