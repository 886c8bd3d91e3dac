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


def plant(value, numbers=None):
    """Return a text or an object in which each secret is another one."""
    numbers = numbers or itertools.count(1)
    if isinstance(value, dict):
        return {plant(key, numbers): plant(inner, numbers) for key, inner in value.items()}
    if isinstance(value, list):
        return [plant(inner, numbers) for inner in value]
    if isinstance(value, str):
        return re.sub(r"LEAK(?!\d)", lambda _: f"LEAK{next(numbers):03}", value)
    return value


def leaks(text):
    """Find secrets in what is shown, in whatever form."""
    forms = [text, unquote(text), text.replace("\\", "")]
    for word in re.findall(r"[\w+/-]{8,}", text):
        for cut in range(4):
            piece = word[cut:]
            piece = piece[: len(piece) // 4 * 4]
            forms.append(base64.b64decode(piece, altchars="-_").decode("latin-1"))
    return sorted({found for form in forms for found in re.findall(r"LEAK\w*", form)})


def objects():
    """Return the objects with a secret in each place, and in each place another one."""

    def whole(value):
        if isinstance(value, dict):
            spec = yaml.safe_load(SECRETS["pod_spec"]) if "POD_SPEC" in value else {}
            return {key: whole(each) for key, each in value.items() if key != "POD_SPEC"} | spec
        if isinstance(value, list):
            return [whole(each) for each in value]
        return yaml.safe_load(SECRETS["container"]) if value == "CONTAINER" else value

    return plant([whole(each) for each in yaml.safe_load_all(SECRETS["objects"])])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", PLACES)
def test_no_secret_of_a_log_survives(redactor, form, place):
    """Whatever names it, joins it with its name, or encodes both."""
    if form == "prefixed" and place in SECRETS["blocks"]:
        pytest.skip("what belongs together is not to be told there")
    assert leaks(redactor.part(FORMS[form](plant(place)), "text")) == []


def test_no_secret_of_an_object_survives(redactor):
    """Values that people set, in all kinds, and those of others; names and states stay."""
    planted = json.dumps(objects())
    assert len(leaks(planted)) > 100
    shown = redactor.part(objects(), "objects")
    assert leaks(shown) == []
    assert "TEVBSw" not in shown
    pod, *_ = json.loads(shown)
    (container,) = pod["spec"]["containers"]
    assert {each["name"]: each.get("value") for each in container["env"]}.items() >= {
        ("PLAIN", "(redacted)"),
        ("NCCL_DEBUG", "INFO"),
        ("FROM", None),
    }
    assert container["args"][:7] == [
        *("--password", "(redacted)", "--note=(redacted)", "--anything", "(redacted)"),
        *("--seed", "1"),
    ]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert container["image"] == "docker.io/acme/trainer:1"
    assert "managedFields" not in pod["metadata"]
    assert pod["metadata"]["labels"]["training.kubeflow.org/job-name"] == "a"
    (status,) = pod["status"]["containerStatuses"]
    assert status["lastState"]["terminated"].items() >= {("exitCode", 137), ("reason", "OOMKilled")}
    assert 'volume \\"token\\" : secret \\"hugging-face\\" not found' in shown
    assert '\\"seed\\": 1' in shown


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cluster_file", "configuration"),
        ("job_file", "configuration"),
        ("outputs_file", "outputs"),
    ],
)
def test_no_secret_of_a_file_survives(redactor, name, kind):
    """Unknown keys, what people name themselves, and comments."""
    text = plant(SECRETS[name])
    shown = redactor.part(text, kind)
    assert leaks(shown) == []
    helps = {
        "cluster_file": ["name: techpulse", "instance_type: p4d.24xlarge", "hf_token: (redacted)"],
        "job_file": ["train_iters: 100", "HF_HOME: (redacted)", "- --wandb-project"],
        "outputs_file": ["LustreId: fs-0123456789abcdef0", "Token: (redacted)"],
    }
    assert all(each in shown for each in helps[name])


@pytest.mark.parametrize(
    "line",
    [
        "connected with {}",
        "connected with x{}y",
        "base64 {base64}",
        "address {address}",
        "mine: anything",
        '"mine" = "anything"',
    ],
)
def test_what_was_hidden_once_is_hidden_everywhere(redactor, line):
    """Values of a job's own variables, without their names as well; and names without values."""
    secret = "Tr0ub4dor &3 anything"  # noqa: S105 -- an example
    pod = {"env": [{"name": "mine", "value": secret}, {"name": "OTHER", "value": "another-1"}]}
    assert secret not in redactor.part([pod], "objects")
    encoded = base64.b64encode(secret.encode()).decode()
    said = line.format(secret, base64=encoded, address=quote(secret))
    shown = redactor.part(said, "text") + redactor.part([{"message": said}], "data")
    assert secret not in unquote(shown)
    assert encoded not in shown
    assert "anything" not in shown


def test_names_are_no_secrets(redactor):
    """Though somebody gave a variable the name of a job, or a word that everybody says."""
    pod = {
        "metadata": {"name": "needs-help-1"},
        "env": [{"name": "A", "value": "needs-help-1"}, {"name": "B", "value": "WARNING"}],
    }
    redactor.part([pod], "objects")
    line = "WARNING: needs-help-1 waits in /shared/logs"
    assert redactor.part(line, "text") == line


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
    assert secret not in redactor.part(text, "text")
    assert secret not in redactor.part(text, "findings")


@pytest.mark.parametrize("text", SECRETS["helps"].splitlines())
def test_what_helps_stays(redactor, text):
    """Numbers of a run, the addresses of the VPC, where a secret is, messages of Kubernetes."""
    assert redactor.part(text, "text") == text
    assert not redactor.counts


def test_findings_keep_their_words(redactor):
    """What we say of a key is no secret; a value that we quote is."""
    redactor.part("runtime: {env: {HF_HOME: Tr0ub4dor}}", "configuration")
    text = "error MEKS-0101 a.yaml:3 hf_token: unknown key 'hf_token' - remove it"
    assert redactor.part(text, "findings") == text
    assert "Tr0ub4dor" not in redactor.part("runtime.env.HF_HOME: 'Tr0ub4dor' is", "findings")
    redactor.part("runtime: {env: {HF_HOME: sunshine}}", "configuration")
    assert "sunshine" not in redactor.part("runtime.env.HF_HOME: 'sunshine' is", "findings")


@pytest.mark.parametrize("sign", ["\x00", "\u2028", "\r", "\x85", "\x0b", "\t", "\x1b[31m"])
def test_other_signs_than_letters_end_no_value(redactor, sign):
    """Colours, the zeros of /proc/PID/environ, and line ends of others."""
    for text in (
        f"A=1 {sign}PLAIN=LEAK1",
        f"PASSWORD=ab{sign}LEAK2",
        f"{sign}HF_TOKEN={sign}LEAK3",
    ):
        assert leaks(redactor.part(text, "text")) == []
    assert leaks(redactor.part("HF_\x1b[1mTO\x1b[0mKEN: LEAK", "text")) == []


def test_a_secret_in_a_name_that_is_shown_is_no_fact(redactor):
    """An address of the cluster file keeps its password out of logs too."""
    redactor.part('images: {mirror: "https://ada:Tr0ub4dor@mirror"}', "configuration")
    redactor.part([{"env": [{"name": "X", "value": "Tr0ub4dor"}]}], "objects")
    assert "Tr0ub4dor" not in redactor.part("with Tr0ub4dor", "text")


def test_the_same_value_is_the_same_placeholder(redactor):
    """So that two objects of one account are still seen to be that."""
    first = redactor.text("a 111122223333 b 444455556666 c 111122223333")
    assert first == "a ACCOUNT-1 b ACCOUNT-2 c ACCOUNT-1"
    assert '"ACCOUNT-2"' in redactor.part({"account": "444455556666"}, "data")
    assert redactor.counts == {"account ids": 4}


def test_long_lines(redactor):
    """Lines as long as a log: this test would not end."""
    for piece in ("a", "=", "--a ", "%41", '"', "a.b-", "://", "\\", "a:", "key ", "A1b2/", "?"):
        assert redactor.part(piece * 200_000, "text")


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
