"""What the plan of the file systems says of their settings."""

from megatron_eks.config.storage import Lustre
from megatron_eks.plan.cluster.lustre import CHANGES

ELSEWHERE = {"kms_key_arn"}
"""A setting of the storage as a whole, which the file systems have too."""
NOT_ONES_OWN = {"mount_path", "per_zone", "existing"}
"""Where pods see it, how many there are, and that it is none of ours."""


def test_of_every_setting_is_known_what_a_change_does():
    """`plan -o json` lists them, and a setting in neither list would look harmless."""
    listed = [key for keys in CHANGES.values() for key in keys]
    assert sorted(listed) == sorted({*Lustre.model_fields, *ELSEWHERE} - NOT_ONES_OWN)
