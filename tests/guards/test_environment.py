"""Variables, options of programs, and secrets in plain text."""

from importlib.util import find_spec

import pytest

from megatron_eks.catalog.program_places import PACKAGE
from megatron_eks.guards.codes import Rule
from megatron_eks.programs import PROGRAM_OPTIONS
from megatron_eks.project import ROOT
from tests.guards.slips import ABSENT, in_manifest

_JOB = "PyTorchJob/megatron-cpt-techpulse"
_MAIN = "spec pytorchReplicaSpecs Master template spec containers 0"
_TOKEN = "hf_" + "a1B2" * 9
_KEY = "0123456789abcdef" * 2 + "01234567"
_FETCH = "Job/fetch-tokenizer"
_BOX = "spec template spec containers 0"
_CONFIG = "ConfigMap/ddp-llama-3-2-1b-5fb41d77"


def _variable(name: str, value: str) -> set[str]:
    more = {"name": name, "value": value}
    return in_manifest(_JOB, f"{_MAIN} env", lambda old: [*old, more]) - {"REPLICAS_DIFFER"}


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("NCCL_PROTO", "Simple", "VARIABLE_ADVISED_AGAINST"),
        ("NCCL_BUFFSIZE", "8388608", "VARIABLE_ADVISED_AGAINST"),
        ("NCCL_DEBUG", "INFO", "DUPLICATE_VARIABLE"),
        ("WANDB_API_KEY", "0123456789abcdef", "SECRET_IN_MANIFEST"),
        ("SOMETHING", _TOKEN, "SECRET_IN_MANIFEST"),
    ],
)
def test_added_variables(name, value, code):
    """A variable that breaks a run, that nothing reads, or that gives a secret away."""
    assert code in _variable(name, value)


def test_right_variables():
    """Variables of a program's own, paths of secrets, and what libraries do anyway."""
    for name, value in (("MINE", "1"), ("HF_TOKEN_PATH", "/shared/t"), ("FI_PROVIDER", "efa")):
        assert _variable(name, value) == set()


@pytest.mark.parametrize("index", range(1, 9))
def test_variables_of_jobs(index):
    """What every job sets is missed."""
    assert "VARIABLE_MISSING" in in_manifest(_JOB, f"{_MAIN} env {index}", ABSENT)


@pytest.mark.parametrize(
    ("index", "value", "code"),
    [
        (0, "8", "REFUSED_VARIABLE"),
        (3, "INIT", "VARIABLE_MISSING"),
        (4, "expandable_segments:False", "VARIABLE_MISSING"),
        (8, "/shared/triton", "VARIABLE_ADVISED_AGAINST"),
    ],
)
def test_values_of_jobs(index, value, code):
    """Values that take the meaning from what jobs set."""
    assert code in in_manifest(_JOB, f"{_MAIN} env {index} value", value)


def test_secrets():
    """Secrets in options, in texts of a ConfigMap, in addresses and in a Secret."""
    args = f"{_MAIN} args"
    for word in ("--wandb-api-key=0123abcd4567", "https://me:secret@example.com/x"):
        assert "SECRET_IN_MANIFEST" in in_manifest(_JOB, args, lambda old, word=word: [*old, word])
    webhook = "Secret/training-operator-webhook-cert"
    assert in_manifest(webhook, "stringData", {"tls.key": "x"}) == {"SECRET_IN_MANIFEST"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("data train_ddp.json", _TOKEN),
        ("data train_ddp.json", f'{{"wandb_api_key": "{_KEY}"}}'),
        ("data", {"train_ddp.json": "{}", "wandb": _KEY}),
        ("data", {"train_ddp.json": "{}", "netrc": "machine a login user password hunter2"}),
        ("data", {"train_ddp.json": "{}", "key.pem": "-----BEGIN PRIVATE KEY-----"}),
        ("metadata annotations", {"wandbApiKey": "not-for-you"}),
    ],
)
def test_secrets_of_configurations(path, value):
    """A ConfigMap is as open as the pod that reads it."""
    assert in_manifest(_CONFIG, path, value) >= {"SECRET_IN_MANIFEST"}


def test_words_about_secrets_are_right():
    """Paths, references, tokens of a vocabulary and lengths are none."""
    words = '{"hf_token_path": "/shared/t", "eos_token": "</s>", "max_tokens": 100000, "token": ""}'
    script = 'export HF_TOKEN=$(cat /run/t)\ntoken = os.environ["HF_TOKEN"]\n'
    more = {"train_ddp.json": words, "setup": script}
    assert in_manifest(_CONFIG, "data", more) == set()


@pytest.mark.parametrize(
    ("name", "path", "value", "code"),
    [
        (_FETCH, f"{_BOX} command 7", "megatron_eks.programs.fetsh", Rule.TRAINING_FLAG),
        (_FETCH, f"{_BOX} command 6", "-u", Rule.TRAINING_FLAG),
        (_FETCH, f"{_BOX} command 5", "torchrun", Rule.TRAINING_FLAG),
        (_FETCH, f"{_BOX} args", lambda old: [old[0], *old], Rule.TRAINING_FLAG),
        (_FETCH, f"{_BOX} args", ABSENT, Rule.TRAINING_FLAG),
        (_CONFIG, "data", {"train.json": "{}"}, Rule.MISSING_OBJECT),
    ],
)
def test_a_wrong_argument_is_reported(name, path, value, code):
    """A program that stops at its start stops when the nodes are paid for."""
    assert code.name in in_manifest(name, path, value)


def test_other_arguments_are_right():
    """Options that a program has are the user's to choose."""
    assert in_manifest(_FETCH, f"{_BOX} args", lambda old: [*old, "--revision", "main"]) == set()


def test_the_options_are_those_of_the_programs():
    """Each option stands in the sources of the programs."""
    folder = ROOT / "megatron_eks" / "programs"
    sources = "".join(each.read_text() for each in folder.rglob("*.py"))
    for program, options in PROGRAM_OPTIONS.items():
        assert find_spec(f"{PACKAGE}.{program}")
        assert [e for e in options.split() if f'"{e}"' not in sources] == []


@pytest.mark.parametrize(
    ("option", "value", "code"),
    [
        ("--global-batch-size", "501", "TRAINING_FLAG"),
        ("--micro-batch-size", "3", "TRAINING_FLAG"),
        ("--expect-efa", "1", "TRAINING_FLAG"),
        ("--load", "/shared/checkpoints/another", "CHECKPOINTS_LOST"),
        ("--save-interval", "1000000", "CHECKPOINTS_LOST"),
        ("--global-batch-size", "4096", None),
    ],
)
def test_sizes_and_places_that_belong_together(option, value, code):
    """Batches that replicas share out, all interfaces, and a restart from what was saved."""

    def changed(args):
        at = args.index(option) + 1
        return [*args[:at], value, *args[at + 1 :]]

    found = in_manifest(_JOB, f"{_MAIN} args", changed) - {"REPLICAS_DIFFER"}
    assert found == ({code} if code else set())
