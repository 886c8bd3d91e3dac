"""User data, pods and disks of nodes."""

import pytest

from tests.guards.slips import ABSENT, in_template

_GPU = "EC2::LaunchTemplate Pool"
_TEXT = "LaunchTemplateData UserData Fn::Base64"
_DISK = "LaunchTemplateData BlockDeviceMappings"
_DATA, _ROOT = {"USER_DATA"}, {"ROOT_VOLUME"}


@pytest.mark.parametrize(
    ("old", "new", "codes"),
    [
        ('"kind"', '"metadata": {"name": "ours"}, "kind"', set()),
        ("multipart/mixed", "text/plain", {*_DATA, "MAX_PODS"}),
        ("--megatron-eks\n", "--megatron\n", {*_DATA, "MAX_PODS"}),
        ("application/node.eks.aws", "application/node.eks", {*_DATA, "MAX_PODS"}),
        ("v1alpha1", "v1", _DATA),
        ("localStorage", "localstorage", _DATA),
        ("RAID0", "RAID5", _DATA),
        ("250", "251", {"MAX_PODS"}),
        ("maxPods", "maxpods", {"MAX_PODS"}),
        ("{\n", "", {*_DATA, "MAX_PODS"}),
    ],
)
def test_user_data(old, new, codes):
    """User data is MIME text with a NodeConfig that nodeadm reads."""
    assert in_template(_GPU, _TEXT, lambda text: text.replace(old, new)) == codes


def test_without_user_data():
    """Without user data NVMe disks stay idle and pods get no address; plain text is refused."""
    user_data = "LaunchTemplateData UserData"
    assert in_template(_GPU, user_data, ABSENT) == {*_DATA, "MAX_PODS"}
    assert in_template(_GPU, user_data, "#!/bin/bash") == _DATA
    assert in_template("EC2::LaunchTemplate System", user_data, {"Ref": "Text"}) == set()


@pytest.mark.parametrize(
    ("path", "value", "codes"),
    [
        (f"{_DISK} 0 Ebs VolumeSize", 1000, set()),
        (f"{_DISK} 0 Ebs VolumeSize", 20, _ROOT),
        (f"{_DISK} 0 Ebs VolumeSize", ABSENT, _ROOT),
        (f"{_DISK} 0 DeviceName", "/dev/sda1", _ROOT),
        (_DISK, ABSENT, _ROOT),
        (_DISK, lambda old: [*old, old[0] | {"DeviceName": "/dev/sdb"}], set()),
        (_DISK, lambda old: [*old, old[0]], {*_ROOT, "TWICE"}),
        (f"{_DISK} 0 Ebs Encrypted", False, {"ENCRYPTION"}),
        (f"{_DISK} 0 Ebs VolumeType", "st1", {"DISK"}),
        (f"{_DISK} 0 Ebs DeleteOnTermination", False, _ROOT),
        (f"{_DISK} 0 Ebs KmsKeyId", "alias/aws/ebs", set()),
        (f"{_DISK} 0 Ebs KmsKeyId", {"Ref": "Key"}, {"KEY_POLICY"}),
    ],
)
def test_root_volume(path, value, codes):
    """The root volume is large enough, encrypted with a usable key, and gone with its node."""
    assert in_template(_GPU, path, value) == codes
