"""fetch from a Hugging Face hub: what is chosen, checked, continued, and never half there."""

import json
import os
import random
import subprocess
import time

import pytest

from megatron_eks.programs.fetch import hub as fetch_hub
from tests.programs import hub_server
from tests.programs.hub_server import TOKEN
from tests.programs.run_program import PROGRAMS, TORCHRUN, Ended

pytestmark = pytest.mark.programs

WEIGHTS = random.Random(1).randbytes(3_000_000)  # noqa: S311 -- no secret
FILES = {
    ".gitattributes": b"*.safetensors filter=lfs",
    "README.md": b"# a model",
    "config.json": b"{}",
    "tokenizer.json": b'{"version": "1.0"}',
    "tokenizer_config.json": b"{}",
    "model-00001-of-00002.safetensors": WEIGHTS,
    "model-00002-of-00002.safetensors": WEIGHTS[::-1],
    "model.safetensors.index.json": b"{}",
    "pytorch_model.bin": b"the same weights once more",
    "original/consolidated.00.pth": b"and once more",
}
MODEL = {
    "README.md",
    "config.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
}


@pytest.fixture
def hub():
    """Return a hub with a model of two shards."""
    hub, server = hub_server.serve(dict(FILES))
    yield hub
    server.shutdown()
    server.server_close()


@pytest.fixture
def start(hub, tmp_path):
    """Return a function that starts fetch with the hub's own Python, as the images have it."""
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home")}
    environment.pop("HF_TOKEN", None)
    python = str(TORCHRUN.with_name("python"))
    return lambda *words: subprocess.Popen(  # noqa: S603 -- the program under test
        [python, "-m", f"{PROGRAMS}.fetch", *map(str, words)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def fetch(start):
    """Return a function that runs fetch to its end."""

    def run(*words):
        with start(*words) as process:
            out, err = process.communicate(timeout=120)
        return Ended(process.returncode, out, err)

    return run


def held(directory) -> set[str]:
    """Return the files of a directory but the marker."""
    found = {p.relative_to(directory).as_posix() for p in directory.rglob("*") if p.is_file()}
    return found - {".fetched.json"}


def test_model_is_fetched_without_second_copies_of_its_weights(fetch, tmp_path):
    """Weights come once, every byte is right, and the marker says from where."""
    target = tmp_path / "models" / "m"
    done = fetch("--model", "org/model", "--directory", target)
    assert done.code == 0, done.stderr
    assert held(target) == MODEL
    assert all((target / name).read_bytes() == FILES[name] for name in MODEL)
    marker = json.loads((target / ".fetched.json").read_text())
    assert (marker["name"], marker["revision"]) == ("org/model", hub_server.COMMIT)
    assert [path.name for path in target.parent.iterdir()] == ["m"]


@pytest.mark.parametrize("name", ["../outside.json", "a/../../outside.json", "a//b.json"])
def test_a_hub_s_name_that_leads_elsewhere_is_refused(fetch, hub, tmp_path, name):
    """What is outside the directory stays as it is."""
    (tmp_path / "outside.json").write_text("mine")
    hub.files[name] = b"{}"
    done = fetch("--model", "org/model", "--directory", tmp_path / "m")
    assert done.code == 4
    assert "rename it at its source" in done.stderr
    assert (tmp_path / "outside.json").read_text() == "mine"


def test_tokenizer_is_small(fetch, tmp_path):
    """Weights stay where they are."""
    target = tmp_path / "tokenizer"
    assert fetch("--tokenizer", "org/model", "--directory", target).code == 0
    assert held(target) == {"config.json", "tokenizer.json", "tokenizer_config.json"}


def test_second_run_asks_nobody(fetch, hub, tmp_path):
    """A job that starts again does not need the hub."""
    target = tmp_path / "m"
    fetch("--model", "org/model", "--directory", target)
    hub.requests.clear()
    done = fetch("--model", "org/model", "--directory", target)
    assert (done.code, done.summary["fetched"]) == (0, False)
    assert hub.requests == []


def test_cut_download_is_fetched_again(fetch, hub, tmp_path):
    """A connection that ends early is no file."""
    hub.cut = 2
    done = fetch("--model", "org/model", "--directory", tmp_path / "m")
    assert done.code == 0, done.stderr
    assert held(tmp_path / "m") == MODEL


def test_killed_download_goes_on_with_the_files_that_are_missing(fetch, hub, start, tmp_path):
    """Nothing is visible, and what had come whole is not fetched again."""
    hub.hold = second = "model-00002-of-00002.safetensors"
    target = tmp_path / "models" / "m"
    with start("--model", "org/model", "--directory", target) as process:
        deadline = time.monotonic() + 60
        while not any(second in request for request in hub.requests if request.startswith("GET")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.kill()
    assert not target.exists()
    hub.hold = ""
    hub.requests.clear()
    assert fetch("--model", "org/model", "--directory", target).code == 0
    assert held(target) == MODEL
    fetched = {request.rpartition("/")[2] for request in hub.requests if "GET /org" in request}
    assert second in fetched
    assert "model-00001-of-00002.safetensors" not in fetched


def test_busy_hub_is_asked_again(fetch, hub, tmp_path):
    """503 is no answer."""
    hub.down = 2
    assert fetch("--tokenizer", "org/model", "--directory", tmp_path / "t").code == 0


def test_wrong_byte_is_found_and_fetched_again(fetch, hub, tmp_path):
    """The hub states the SHA-256 of weights; what is damaged never appears."""
    hub.damage = 10_000
    words = ("--model", "org/model", "--directory", tmp_path / "m")
    done = fetch(*words)
    assert done.code == 4, done.stderr
    assert "its content is not what the source states" in done.findings[0]
    assert not (tmp_path / "m").exists()
    hub.damage = 0
    assert fetch(*words).code == 0
    shards = [name for name in MODEL if name.endswith(".safetensors")]
    assert all((tmp_path / "m" / name).read_bytes() == FILES[name] for name in shards)


def test_gated_model_without_a_token_names_the_remedy(fetch, hub, tmp_path):
    """Where to accept the licence, and how the token gets to the program."""
    hub.gated = True
    done = fetch("--model", "org/model", "--directory", tmp_path / "m")
    assert done.code == 1
    assert done.findings[0] == (
        "error org/model: the model is gated, and it needs a token - accept the licence at "
        f"{hub.url}/org/model, then give a read token of that account with --token-file (in the "
        "cluster: the Secret that the job's token_secret names)"
    )


def test_token_comes_from_a_file_and_is_never_shown(fetch, hub, tmp_path):
    """It reaches the hub and nothing else."""
    hub.gated = True
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    words = ("--model", "org/model", "--directory", tmp_path / "m", "--token-file", token)
    done = fetch(*words)
    assert done.code == 0, done.stderr
    assert hub.authorization == {f"Bearer {TOKEN}"}
    assert TOKEN not in done.stdout + done.stderr
    assert not any(TOKEN in path.read_text() for path in (tmp_path / "m").glob("*.json"))
    token.write_text("hf_of_somebody_else")
    done = fetch("--model", "org/model", "--directory", tmp_path / "n", "--token-file", token)
    assert done.code == 1
    assert "the token's account has no access" in done.findings[0]
    assert "hf_of_somebody_else" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--model", "org/other"], "no such model, or a private one"),
        (["--model", "no/such/name"], "no such model, or a private one"),
        (["--model", "org/model", "--token-file", "none"], "mount the token's Secret there"),
    ],
)
def test_what_is_not_there_exits_with_3(fetch, tmp_path, words, found):
    """Names are corrected, not waited for."""
    done = fetch(*words, "--directory", tmp_path / "m")
    assert (done.code, done.summary["status"]) == (3, "not found")
    assert found in done.findings[0]


def test_directory_with_something_else_is_left_alone(fetch, tmp_path):
    """Nothing is overwritten, whether it was fetched or not."""
    target = tmp_path / "m"
    target.mkdir()
    (target / "mine").write_text("mine")
    done = fetch("--model", "org/model", "--directory", target)
    assert done.code == 4
    assert held(target) == {"mine"}
    fetch("--tokenizer", "org/model", "--directory", tmp_path / "t")
    done = fetch("--model", "org/model", "--directory", tmp_path / "t")
    assert done.code == 4
    assert "it holds tokenizer org/model" in done.findings[0]
    (tmp_path / "t" / "tokenizer.json").write_text("{}")
    done = fetch("--tokenizer", "org/model", "--directory", tmp_path / "t")
    assert done.code == 4
    assert "another size than when it was fetched" in done.findings[0]


def test_weights_without_safetensors_are_taken_as_they_are():
    """An old model has nothing else."""
    names = ["config.json", "pytorch_model.bin", ".gitattributes"]
    assert fetch_hub.choose(names, tokenizer_only=False) == ["config.json", "pytorch_model.bin"]
