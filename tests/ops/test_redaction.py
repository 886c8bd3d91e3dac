"""What never leaves the machine in a support bundle, and what stays because it helps."""

import base64
import itertools
import json
import re
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
import yaml

from megatron_eks.ops.support.bundle import Redactor
from megatron_eks.ops.support.secret_forms import sounds_secret
from megatron_eks.ops.support.settings import shown_settings

SECRETS = yaml.safe_load(Path(__file__).with_name("secret_places.yaml").read_text())
PLACES = (*SECRETS["texts"].splitlines(), *SECRETS["blocks"])
FORMS = {
    "plain": lambda text: text,
    "base64": lambda text: f"said {base64.b64encode(text.encode()).decode()} there",
    "wrapped": lambda text: base64.encodebytes(b"x" * 60 + text.encode()).decode(),
    "address": lambda text: quote(text, safe=""),
    "json": lambda text: json.dumps({"message": text}),
    "json in json": lambda text: json.dumps([json.dumps({"message": text})]),
    "prefixed": lambda text: "".join(f"[rank0]: INFO {line}\n" for line in text.splitlines()),
    "secret": lambda text: "WEBHOOK: " + base64.b64encode(base64.b64encode(text.encode())).decode(),
}


@pytest.fixture
def redactor():
    """Return one for somebody's home."""
    return Redactor(Path("/home/ada"))


def plant(text):
    """Return a text in which each secret is another one."""
    numbers = itertools.count(1)
    return re.sub(r"LEAK(?!\d)", lambda _: f"LEAK{next(numbers):03}", text)


def leaks(text):
    """Find secrets in what is shown, in whatever form."""
    forms = [text, unquote(text), text.replace("\\", "")]
    for word in re.findall(r"[\w+/-]{8,}", text):
        for cut in range(4):
            piece = word[cut:]
            piece = piece[: len(piece) // 4 * 4]
            forms.append(base64.b64decode(piece, altchars="-_").decode("latin-1"))
    return sorted({found for form in forms for found in re.findall(r"LEAK\w*", form)})


# Behind prefixes nothing tells which lines of a block belong together.
CASES = [
    (form, place)
    for place in PLACES
    for form in FORMS
    if form != "prefixed" or place not in SECRETS["blocks"]
]


@pytest.mark.parametrize(("form", "place"), CASES)
def test_no_secret_of_a_log_survives(redactor, form, place):
    """Whatever names it, joins it with its name, or encodes both."""
    assert leaks(redactor.text(FORMS[form](plant(place)))) == []


@pytest.mark.parametrize(
    ("name", "helps"),
    [
        (
            "cluster_file",
            ["name: techpulse", "instance_type: p4d.24xlarge", "hf_token: (redacted)"],
        ),
        ("job_file", ["train_iters: 100", "HF_HOME: (redacted)", "- --wandb-project"]),
    ],
)
def test_no_secret_of_a_file_survives(redactor, name, helps):
    """Unknown keys, what people name themselves, and comments."""
    shown = redactor.text(shown_settings(plant(SECRETS[name]), redactor.hidden), own=True)
    assert leaks(shown) == []
    assert all(each in shown for each in helps)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("arn:aws:iam::123456789012:role/Admin", "123456789012"),
        ("123456789012.dkr.ecr.us-east-2.amazonaws.com/x", "123456789012"),
        ("mail ada@example.com now", "ada@example.com"),
        ("reached from 8.8.4.4:443", "8.8.4.4"),
        ("/home/ada/project/cluster.yaml", "ada"),
    ],
)
def test_accounts_people_and_public_addresses_go(redactor, text, secret):
    """Wherever they stand, in our own words too."""
    assert secret not in redactor.text(text)
    assert secret not in redactor.text(text, own=True)


@pytest.mark.parametrize("text", SECRETS["helps"].splitlines())
def test_what_helps_stays(redactor, text):
    """Numbers of a run, the addresses of the VPC, where a secret is, messages of Kubernetes."""
    assert redactor.text(text) == text


def test_findings_keep_their_words(redactor):
    """What we say of a key is no secret; a value that we quote is."""
    shown_settings("runtime: {env: {HF_HOME: sunshine}}", redactor.hidden)
    text = "error MEKS-0101 a.yaml:3 hf_token: unknown key 'hf_token' - remove it"
    assert redactor.text(text, own=True) == text
    assert "sunshine" not in redactor.text("runtime.env.HF_HOME: 'sunshine' is", own=True)


@pytest.mark.parametrize("sign", ["\x00", "\u2028", "\r", "\x85", "\x0b", "\t", "\x1b[31m"])
def test_other_signs_than_letters_end_no_value(redactor, sign):
    """Colours, the zeros of /proc/PID/environ, and line ends of others."""
    for text in (
        f"A=1 {sign}PLAIN=LEAK1",
        f"PASSWORD=ab{sign}LEAK2",
        f"{sign}HF_TOKEN={sign}LEAK3",
    ):
        assert leaks(redactor.text(text)) == []
    assert leaks(redactor.text("HF_\x1b[1mTO\x1b[0mKEN: LEAK")) == []


def test_long_lines(redactor):
    """Lines as long as a log: this test would not end."""
    for piece in ("a", "=", "--a ", "%41", '"', "a.b-", "://", "\\", "a:", "key ", "A1b2/", "?"):
        assert redactor.text(piece * 200_000)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        *(
            (each, True)
            for each in ["HF_TOKEN", "APITOKEN", "accesstoken", "SECRETKEY", "PGPASSWORD"]
        ),
        *(
            (each, True)
            for each in ["DB_PASS", "GITHUB_PAT", "apiKey", "privateKey", "DB_PASSWORD"]
        ),
        *((each, True) for each in ["aws_secret_access_key", "client-key-data", "x-api-key"]),
        *((each, True) for each in ["Authorization", "Cookie", "db.credentials", "sessionToken"]),
        *((each, False) for each in ["tokenizer", "eos_token", "tokens_per_second", "max_tokens"]),
        *(
            (each, False)
            for each in ["secretName", "token_file", "publicKey", "key", "path", "compat"]
        ),
        *((each, False) for each in ["KeyError", "TokenError", "tokenizer_model", "HF_TOKEN_PATH"]),
    ],
)
def test_names(name, secret):
    """However they are written and joined."""
    assert sounds_secret(name) is secret
