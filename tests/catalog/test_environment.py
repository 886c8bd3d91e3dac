"""The verdict on variables whose value or spelling decides."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from megatron_eks.catalog.environment import IMAGE_VARIABLES, POLICIES, Verdict, is_secret
from megatron_eks.catalog.environment_verdicts import ABOUT_EFA, Context, judge, judge_any
from megatron_eks.catalog.instances import INSTANCES


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
        ("NCCL_SOCKET_IFNAME", "eth", False, True),
        ("NCCL_SOCKET_IFNAME", "=eth0", False, True),
        ("NCCL_SOCKET_IFNAME", "=eth", False, False),
        ("NCCL_SOCKET_IFNAME", "^lo,docker", False, True),
        ("NCCL_SOCKET_IFNAME", "^lo,eth", False, False),
        ("NCCL_SOCKET_IFNAME", "^=eth", False, True),
        ("GLOO_SOCKET_IFNAME", "eth", False, False),
        ("GLOO_SOCKET_IFNAME", "^lo", False, False),
    ],
)
def test_socket_interfaces(name, value, host_network, allowed):
    """A pod has eth0 alone; on a node only an exclusion is right for every AMI."""
    policy = judge(name, value, Context(host_network=host_network))
    assert (policy.verdict is Verdict.ALLOWED) is allowed


def test_names_that_begin_like_torchruns():
    """Only torchrun's own names are refused, not every name that begins like one."""
    assert judge("ROLE_RANK", "0", Context()).verdict is Verdict.REFUSED
    assert judge("ROLE_ARN", "arn", Context()).verdict is Verdict.ALLOWED
    assert judge("TORCHELASTIC_RUN_ID", "a", Context()).verdict is Verdict.REFUSED
    assert judge("TORCHELASTIC_ENABLE_FILE_TIMER", "1", Context()).verdict is Verdict.ALLOWED


TABLE = yaml.safe_load((Path(__file__).parent / "variables.yaml").read_text())


@pytest.mark.parametrize(
    ("verdict", "name", "value"),
    [(verdict, *pair) for verdict in Verdict for pair in TABLE[verdict.value].items()],
)
def test_every_documented_variable_has_its_verdict(verdict, name, value):
    """What the guides write is judged by name and value, with a reason and what to do instead."""
    policy = judge(name, value, Context())
    assert (policy.verdict, bool(policy.reason), bool(policy.instead)) == (verdict, True, True)


def test_every_policy_stands_in_the_table():
    """No verdict is without a case."""
    assert set(POLICIES) <= {name for verdict in Verdict for name in TABLE[verdict.value]}


def test_what_the_image_sets_is_refused_in_a_job():
    """Paths of the image and the device plugin's choice are no business of a job file."""
    assert set(TABLE["of the image"]) <= set(IMAGE_VARIABLES)


P5 = Context(INSTANCES["p5.48xlarge"])
PLACES = {
    "any": Context(),
    "p4d": Context(INSTANCES["p4d.24xlarge"]),
    "p5": P5,
    "p5small": Context(INSTANCES["p5.4xlarge"]),
    "b200": Context(INSTANCES["p6-b200.48xlarge"]),
    "g5": Context(INSTANCES["g5.48xlarge"]),
    "g5small": Context(INSTANCES["g5.xlarge"]),
    "host": replace(P5, host_network=True),
    "split": replace(P5, splits_layers=True),
    "splitb200": Context(INSTANCES["p6-b200.48xlarge"], splits_layers=True),
    "fsdp": replace(P5, splits_layers=False, fsdp=True),
    "whole": replace(P5, splits_layers=False),
    "shared": replace(P5, shared=("/shared",)),
}
SHORT = {
    "s": Verdict.SET,
    "ok": Verdict.ALLOWED,
    "adv": Verdict.ADVISED_AGAINST,
    "ref": Verdict.REFUSED,
    "no": Verdict.NO_EFFECT,
}
BY_PLACE = yaml.safe_load((Path(__file__).parent / "variables_by_place.yaml").read_text())


@pytest.mark.parametrize(
    ("name", "value", "place", "verdict"),
    [
        (name, value, place, SHORT[short])
        for name, values in BY_PLACE.items()
        for value, places in values.items()
        for place, short in places.items()
    ],
)
def test_the_verdict_depends_on_the_place(name, value, place, verdict):
    """GPU, layout and network decide what a variable does, and with it the verdict."""
    policy = judge(name, value, PLACES[place])
    assert (policy.verdict, bool(policy.reason), bool(policy.instead)) == (verdict, True, True)


def test_what_is_about_efa_is_judged_by_place():
    """No variable of EFA or of its plugin keeps its verdict on nodes without EFA unseen."""
    about = {name for name in POLICIES if ABOUT_EFA.fullmatch(name)}
    unseen = about - BY_PLACE.keys() - {"NCCL_IB_GID_INDEX", "NCCL_IB_TC", "NCCL_IB_TIMEOUT"}
    assert unseen == set()


def test_of_several_places_the_mildest_verdict_holds():
    """A pod that may run on types of two kinds is not refused for what is right on one."""
    places = [PLACES["g5small"], PLACES["p5"]]
    assert judge_any("NCCL_BUFFSIZE", "1", places).verdict is Verdict.ALLOWED
    assert judge_any("NCCL_NET", "Socket", places).verdict is Verdict.ALLOWED
    assert judge_any("NCCL_NET", "Socket", [P5, P5]).verdict is Verdict.ADVISED_AGAINST
