"""outputs.json holds what AWS calls its things, in the cluster's own account and region."""

import json

import pytest

from megatron_eks.config.load import read_mapping
from megatron_eks.config.outputs import Home, read_outputs

ACCOUNT, OTHER = "123456789012", "999999999999"
HOME = Home("us-east-2", {ACCOUNT})
DIGEST = f"sha256:{'a' * 64}"
REGISTRY = f"{ACCOUNT}.dkr.ecr.us-east-2.amazonaws.com"
NUMBER = "fs-0123456789abcdef0"
GOOD = {
    "LustreId": NUMBER,
    "LustreDnsName": f"{NUMBER}.fsx.us-east-2.amazonaws.com",
    "LustreMountName": "abcdefgh",
    "BucketName": "techpulse-storage-bucket83908e77-1abcdefgh",
    "JobRoleArn": f"arn:aws:iam::{ACCOUNT}:role/techpulse-Storage-JobRole-1AB",
    "EfsId": "fs-0fedcba9876543210",
    "EfsAccessPointId": "fsap-0fedcba9876543210",
    "MegatronImage": f"{REGISTRY}/megatron-training@{DIGEST}",
    "FsdpImage": f"{REGISTRY}/staging/fsdp:0123456789abcdef0123",
    "FsdpBuildProject": "techpulse-fsdp",
    "BastionId": "i-0123456789abcdef0",
    "ExportsOutputRefVpc8378EB38272D6E3A": "vpc-0123456789abcdef0",
}
BAD = {
    "an image of anybody": {"MegatronImage": f"evil.example.com/megatron-training@{DIGEST}"},
    "a registry below another name": {"MegatronImage": f"{REGISTRY}.example.com/m@{DIGEST}"},
    "a name before the registry": {"MegatronImage": f"evil.example.com/{REGISTRY}/m@{DIGEST}"},
    "an image of another account": {
        "FsdpImage": f"{OTHER}.dkr.ecr.us-east-2.amazonaws.com/fsdp@{DIGEST}"
    },
    "an image of another region": {
        "FsdpImage": f"{ACCOUNT}.dkr.ecr.eu-west-1.amazonaws.com/fsdp@{DIGEST}"
    },
    "a public image": {"FsdpImage": f"public.ecr.aws/x/fsdp@{DIGEST}"},
    "a path in a registry": {"FsdpImage": f"{REGISTRY}/a/..//fsdp@{DIGEST}"},
    "half a digest": {"FsdpImage": f"{REGISTRY}/fsdp@sha256:{'a' * 63}"},
    "an image and a line": {"FsdpImage": f"{REGISTRY}/fsdp@{DIGEST}\n"},
    "an image and a command": {"FsdpImage": f"{REGISTRY}/fsdp:$(id)"},
    "an id with a space": {"LustreId": "fs-x y"},
    "an id of something else": {"LustreId": "vol-0123456789abcdef0"},
    "a host of anybody": {"LustreDnsName": "evil.example.com"},
    "no host": {"LustreDnsName": "a b;c$(id)"},
    "another file system": {"LustreDnsName": "fs-0aaaaaaaaaaaaaaaa.fsx.us-east-2.amazonaws.com"},
    "a file system elsewhere": {"LustreDnsName": f"{NUMBER}.fsx.eu-west-1.amazonaws.com"},
    "a longer host": {"LustreDnsName": f"{NUMBER}.fsx.us-east-2.amazonaws.com.example.com"},
    "another mount": {"LustreMountName": "../../etc"},
    "a mount and an option": {"LustreMountName": "a,exec"},
    "no bucket": {"BucketName": "Bucket/prefix"},
    "an address": {"BucketName": "192.168.1.1"},
    "two dots": {"BucketName": "a..b"},
    "a role of another account": {"JobRoleArn": f"arn:aws:iam::{OTHER}:role/x"},
    "a user": {"JobRoleArn": f"arn:aws:iam::{ACCOUNT}:user/x"},
    "no access point": {"EfsAccessPointId": "fsap-x::y"},
    "an option": {"FsdpBuildProject": "--region"},
    "a control sequence": {"Anything": "x\x1b]52;c;AAAA\x1b\\"},
    "a second line": {"Anything": "x\ny"},
}


def findings(values, home=HOME):
    """Return what is said of a file with these values."""
    text = json.dumps({"techpulse-Storage": values})
    _, found = read_outputs(
        read_mapping(text, "outputs.json"),
        "techpulse",
        {"megatron": "m:1", "fsdp": "f:1"},
        home=home,
    )
    return [str(each) for each in found]


def test_what_aws_writes_is_accepted():
    """Also from GovCloud and with a second file system."""
    assert findings(GOOD) == []
    second = {f"{key}Useast2a": value for key, value in GOOD.items() if key.startswith("Lustre")}
    assert findings(GOOD | second) == []
    assert findings(GOOD, home=None) == []
    moved = {key: value.replace("us-east-2", "us-gov-west-1") for key, value in GOOD.items()}
    moved["JobRoleArn"] = moved["JobRoleArn"].replace("arn:aws:", "arn:aws-us-gov:")
    assert findings(moved, Home("us-gov-west-1", {ACCOUNT})) == []


@pytest.mark.parametrize("what", BAD)
def test_anything_else_is_refused_with_its_place(what):
    """One line: where, what was found, what is allowed, what to do; nothing a terminal obeys."""
    (key,) = BAD[what]
    (line,) = [each for each in findings(GOOD | BAD[what]) if f".{key}: " in each]
    assert line.startswith(f"error MEKS-0008 outputs.json:1 techpulse-Storage.{key}: ")
    assert "remove the file, then write it anew: meks outputs" in line
    assert line.isprintable()


def test_a_long_value_is_cut():
    """Its beginning tells where it is from."""
    (line,) = findings(GOOD | {"BucketName": "B" * 61})
    assert f"'{'B' * 60}...' is no" in line


def test_what_is_allowed_is_named():
    """For an image also where one of another registry belongs."""
    image = f"{OTHER}.dkr.ecr.us-east-2.amazonaws.com/fsdp:1"
    assert findings(GOOD | {"FsdpImage": image}) == [
        (
            "error MEKS-0008 outputs.json:1 techpulse-Storage.FsdpImage: "
            f"{image!r} is not an image in ECR of account {ACCOUNT} in us-east-2 - remove the "
            "file, then write it anew: meks outputs; an image of another registry belongs in "
            "`image` of a job file"
        )
    ]


def test_without_a_known_account_the_file_holds_one():
    """A cluster file with AWS's example alone knows none, and the jobs' role has one."""
    home = Home("us-east-2", set())
    assert findings(GOOD, home) == []
    (line,) = findings(GOOD | BAD["an image of another account"], home)
    assert f"not an image in ECR of account {ACCOUNT} in us-east-2" in line
