"""Unusual and correct files stay accepted, where no row of a table can say it."""

import pytest

from tests.config.test_job_errors import GOOD as JOB
from tests.config.test_job_errors import ROOT
from tests.config.test_job_errors import findings as of_job


def test_lines_that_end_as_on_windows():
    """Other unusual and correct files are rows of the tables, from which nothing is expected."""
    assert of_job(JOB.replace("\n", "\r\n")) == []


@pytest.mark.parametrize(
    "words",
    [
        "--moe-token-dispatcher-type, flex, --moe-flex-dispatcher-backend, deepep",
        "--moe-token-dispatcher-type, flex, --moe-enable-deepep",
        "--option-of-a-fork, '3'",
    ],
)
def test_what_another_image_may_have_is_refused_of_this_project_s_alone(words):
    """Beside an image of the user's it is a warning."""
    example = ROOT / "examples" / "p5-reservation"
    text = (example / "jobs" / "mixtral-8x7b.yaml").read_text()
    text = f"{text}extra_args: [{words}]\n"
    own = f"{text}image: registry.example/own@sha256:{'0' * 64}\n"
    p5 = (example / "cluster.yaml").read_text()
    assert "error" in {line.split()[0] for line in of_job(text, p5)}
    assert {line.split()[0] for line in of_job(own, p5)} == {"warning"}


def test_a_secret_with_a_dot_in_its_name():
    """Kubernetes names Secrets as it names most objects, and `meks secret` takes such a name."""
    text = (ROOT / "jobs" / "fetch-tokenizer.yaml").read_text()
    assert "token_secret: hugging-face" in text
    assert of_job(text.replace("token_secret: hugging-face", "token_secret: team-a.hf")) == []
    assert of_job(text.replace("token_secret: hugging-face", "token_secret: team_a"))
