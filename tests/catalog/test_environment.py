"""The verdict on variables whose value or spelling decides."""

from pathlib import Path

import pytest
import yaml

from megatron_eks.catalog.environment import (
    IMAGE_VARIABLES,
    POLICIES,
    Verdict,
    is_secret,
    judge,
)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "HF_TOKEN",
            "HUGGING_FACE_HUB_TOKEN",
            "GITHUB_TOKEN",
            "TOKEN",
            "db_password",
            "MY_SECRET",
        ),
        *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "NGC_APIKEY"),
    ],
)
def test_secrets(name):
    """What ends in a secret's name holds one."""
    assert is_secret(name, "value")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAX_TOKENS", "x"),
        ("TOKENIZERS_PARALLELISM", "x"),
        ("EOS_TOKEN", "</s>"),
        ("HF_TOKEN_PATH", "/run/secrets/token"),
        ("SECRET_NAME", "hf"),
        ("USE_AUTH_TOKEN", "True"),
        ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"),
        ("HF_TOKEN", ""),
        ("OPENAI_API_KEY", "dummy"),
    ],
)
def test_no_secrets(name, value):
    """Paths, numbers, switches and special tokens of a vocabulary are no secrets."""
    assert not is_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value", "host_network", "allowed"),
    [
        # NCCL takes prefixes and exclusions, Gloo exact names.
        ("NCCL_SOCKET_IFNAME", "eth0", False, True),
        ("NCCL_SOCKET_IFNAME", "eth", False, True),
        ("NCCL_SOCKET_IFNAME", "=eth0", False, True),
        ("NCCL_SOCKET_IFNAME", "=eth", False, False),
        ("NCCL_SOCKET_IFNAME", "ens5", False, False),
        ("NCCL_SOCKET_IFNAME", "^lo,docker", False, True),
        ("NCCL_SOCKET_IFNAME", "^lo,eth", False, False),
        ("NCCL_SOCKET_IFNAME", "^=eth", False, True),
        ("NCCL_SOCKET_IFNAME", "^lo,docker,veth,pod-id-link", True, True),
        ("NCCL_SOCKET_IFNAME", "eth0", True, False),
        ("GLOO_SOCKET_IFNAME", "eth0", False, True),
        ("GLOO_SOCKET_IFNAME", "eth", False, False),
        ("GLOO_SOCKET_IFNAME", "^lo", False, False),
    ],
)
def test_socket_interfaces(name, value, host_network, allowed):
    """A pod has eth0 alone; on a node only an exclusion is right for every AMI."""
    policy = judge(name, value, host_network=host_network)
    assert (policy.verdict is Verdict.ALLOWED) is allowed


def test_names_that_begin_like_torchruns():
    """Only torchrun's own names are refused, not every name that begins like one."""
    assert judge("ROLE_RANK", "0", host_network=False).verdict is Verdict.REFUSED
    assert judge("ROLE_ARN", "arn", host_network=False).verdict is Verdict.ALLOWED
    assert judge("TORCHELASTIC_RUN_ID", "a", host_network=False).verdict is Verdict.REFUSED
    assert (
        judge("TORCHELASTIC_ENABLE_FILE_TIMER", "1", host_network=False).verdict is Verdict.ALLOWED
    )


TABLE = yaml.safe_load((Path(__file__).parent / "variables.yaml").read_text())


@pytest.mark.parametrize(
    ("verdict", "name", "value"),
    [(verdict, *pair) for verdict in Verdict for pair in TABLE[verdict.value].items()],
)
def test_every_documented_variable_has_its_verdict(verdict, name, value):
    """What the guides write is judged by name and value, with a reason and what to do instead."""
    policy = judge(name, value, host_network=False)
    assert (policy.verdict, bool(policy.reason), bool(policy.instead)) == (verdict, True, True)


def test_every_policy_stands_in_the_table():
    """No verdict is without a case."""
    assert set(POLICIES) <= {name for verdict in Verdict for name in TABLE[verdict.value]}


def test_what_the_image_sets_is_refused_in_a_job():
    """Paths of the image and the device plugin's choice are no business of a job file."""
    assert set(TABLE["of the image"]) <= set(IMAGE_VARIABLES)
