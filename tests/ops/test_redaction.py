"""What never leaves the machine in a support bundle, and what stays because it helps."""

from pathlib import Path

import pytest

from megatron_eks.ops.support.redaction import Redactor, sounds_secret

JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6Ik.eyJpc3MiOiJrdWJlcm5ldGVz.c2lnbmF0dXJl"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\n-----END RSA PRIVATE KEY-----"


@pytest.fixture
def redactor():
    """Return one for somebody's home."""
    return Redactor(Path("/home/ada"))


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("HF_TOKEN=abcd1234", "abcd1234"),
        ("export AWS_SECRET_ACCESS_KEY='wJalrXUtnFEMI/K7MDENG'", "wJalr"),
        ("key AKIAIOSFODNN7EXAMPLE is used", "AKIA"),
        ("token hf_AbCdEfGhIjKlMnOpQrStUv", "hf_"),
        ("Authorization: Bearer abc.def-123456", "abc.def"),
        (f"login with {JWT}", "eyJ"),
        ("k8s-aws-v1.aHR0cHM6Ly9zdHM", "aHR0"),
        ("git clone https://ada:pa55word@example.com/x", "pa55word"),
        ("--password hunter2hunter2", "hunter2"),
        ('{"api_key": "s3cr3tvalue"}', "s3cr3t"),
        ("wandb: api_key=0123456789abcdef0123456789abcdef01234567", "0123456789abcdef"),
        (f"ca:\n{PEM}\nend", "MIIEp"),
        ("GET /o?X-Amz-Credential=AB%2F20261122&X-Amz-Signature=deadbeef01", "deadbeef"),
        ("arn:aws:iam::123456789012:role/Admin", "123456789012"),
        ("123456789012.dkr.ecr.us-east-2.amazonaws.com/x", "123456789012"),
        ("mail ada@example.com now", "ada@example.com"),
        ("reached from 8.8.4.4:443", "8.8.4.4"),
        ("/home/ada/project/cluster.yaml", "ada"),
    ],
)
def test_secrets_accounts_people_and_public_addresses_go(redactor, text, secret):
    """Wherever they stand."""
    assert secret not in redactor.text(text)
    assert redactor.counts or "/home" in text


@pytest.mark.parametrize(
    "text",
    [
        "iteration 100/ 1000 | consumed samples: 102400 | tokens per second: 123456",
        "tokenizer: HuggingFaceTokenizer",
        "token budget exceeded, see the manual",
        "address 10.0.3.7, gateway 172.20.0.1, all 0.0.0.0, loopback 127.0.0.1",
        "NCCL version 2.27.5+cuda12.9",
        "secretName: hugging-face",
        "image: nvcr.io/nvidia/pytorch@sha256:" + 64 * "a",
        "NET/OFI Selected Provider is efa, fabric is efa-direct (found 4 nics)",
        "elapsed 1732270000123 ns",
    ],
)
def test_what_helps_stays(redactor, text):
    """Numbers of a run, the addresses of the VPC, where a secret is."""
    assert redactor.text(text) == text
    assert not redactor.counts


def test_the_same_value_is_the_same_placeholder(redactor):
    """So that two objects of one account are still seen to be that."""
    first = redactor.text("a 111122223333 b 444455556666 c 111122223333")
    assert first == "a ACCOUNT-1 b ACCOUNT-2 c ACCOUNT-1"
    assert redactor.value({"account": "444455556666"}) == {"account": "ACCOUNT-2"}
    assert redactor.counts == {"account ids": 4}


def test_objects_lose_the_values_of_secret_names(redactor):
    """Environment variables, fields, and what only repeats the object."""
    pod = {
        "metadata": {
            "name": "a",
            "managedFields": [{"manager": "meks"}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{...}"},
        },
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "env": [
                        {"name": "HF_TOKEN", "value": "plain"},
                        {"name": "RANK", "value": "3"},
                        {
                            "name": "WANDB_API_KEY",
                            "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "token"}},
                        },
                    ],
                    "args": ["--api-key", "abcdef012345678"],
                }
            ],
        },
        "data": {"password": "plain", "tokenizer": "x"},
    }
    found = redactor.value(pod)
    env = found["spec"]["containers"][0]["env"]
    assert env[0] == {"name": "HF_TOKEN", "value": "(redacted)"}
    assert env[1] == {"name": "RANK", "value": "3"}
    assert env[2]["valueFrom"]["secretKeyRef"] == {"name": "wandb", "key": "token"}
    assert found["spec"]["containers"][0]["args"] == ["--api-key", "(redacted)"]
    assert found["data"] == {"password": "(redacted)", "tokenizer": "x"}
    assert found["metadata"] == {"name": "a", "annotations": {}}


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True),
        ("aws_secret_access_key", True),
        ("apiKey", True),
        ("privateKey", True),
        ("DB_PASSWORD", True),
        ("tokens", False),
        ("tokenizer", False),
        ("secretName", False),
        ("token_file", False),
        ("publicKey", False),
        ("imagePullSecrets", False),
    ],
)
def test_names(name, secret):
    """By the words they are made of."""
    assert sounds_secret(name) is secret
