"""Unusual and correct files stay accepted: each of these was written by somebody, and works."""

import pytest

from tests.config.test_cluster_errors import GOOD as CLUSTER
from tests.config.test_cluster_errors import findings as of_cluster
from tests.config.test_job_errors import GOOD as JOB
from tests.config.test_job_errors import ROOT
from tests.config.test_job_errors import findings as of_job


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\n", "\r\n"),
        ("schema_version: 1\n", "---\nschema_version: 1\n"),
        ("seed: 1234", "seed: !!int 1234"),
        ("name: megatron-cpt-techpulse", "name: !!str megatron-cpt-techpulse"),
        ("tensor: 4", "tensor: 8"),
        ("  pipeline: 1\n", "  pipeline: 4\n  virtual_pipeline: 2\n"),
        ("model: llama-3.1-8b", "model: {preset: llama-3.1-8b, num_query_groups: 1}"),
        ("model: llama-3.1-8b", "model: {preset: llama-3.1-8b, vocab_size: 50257}"),
        ("split: [98, 2, 0]", "split: [969, 30, 1]"),
        ("split: [98, 2, 0]", "split: [0.98, 0.02, 0]"),
        ("recompute: selective", "recompute: full\n  recompute_layers: 5"),
        ("lr_schedule: cosine", "lr_schedule: WSD\n  decay_iters: 1000"),
        ("format: torch_dist\n  async_save: true", "format: torch\n  async_save: false"),
        ("/techpulse-cpt", "/iter_experiment"),
        ("techpulse_text_document", "dolma_v1_content_sentence"),
        ("  keep_days: 7", "extra_args: [--no-load-rng, --override-opt-param-scheduler]"),
        ("  keep_days: 7", "extra_args: [--non-persistent-ckpt-type, global]"),
        ("  keep_days: 7", "extra_args: [--qk-clip, --qk-clip-alpha, '0.5', --adam-eps=1e-8]"),
        ("  shm_gib: 128", "  torchrun_path: /opt/venv/bin/torchrun"),
    ],
)
def test_a_job(old, new):
    """One unusual thing in a shipped job gives no line."""
    assert old in JOB
    assert of_job(JOB.replace(old, new)) == []


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


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("10.0.0.0/16", "100.64.0.0/16"),
        ("8.8.8.0/24", "8.8.8.8/32"),
        (":role/Admin", ":role/teams/ml/Admin"),
        (
            "role/Admin]",
            "role/Admin, arn:aws:iam::210987654321:role/Partner]",
        ),
        ("tags: {}", "images: {megatron: {build_args: {TOKENIZER_VERSION: '2'}}}"),
        (
            "storage:\n",
            (
                "storage:\n  kms_key_arn: arn:aws:kms:us-east-2:123456789012:key/mrk-"
                "0123456789abcdef0123456789abcdef\n"
            ),
        ),
        (
            "    mount_path: /shared",
            "    mount_path: /shared\n    data_repositories: [{path: /s3, s3_uri: 's3://a.b-c.d'}]",
        ),
        (
            "max_nodes: 2",
            (
                "max_nodes: 2\n    capacity: {type: capacity_block, id: cr-0123456789abcdef0, "
                "ends_at: '2026-12-01T13:30:00+02:00'}"
            ),
        ),
        ("tags: {}", "tags: {Owner: ml team, cost-center: '4711', 'app:name': x@y+z/=.}"),
        ("labels: {}", "labels: {example.com/team: nlp, tier: '2'}"),
    ],
)
def test_a_cluster(old, new):
    """One unusual thing in a correct cluster gives no line."""
    assert old in CLUSTER
    assert of_cluster(CLUSTER.replace(old, new)) == []


def test_a_secret_with_a_dot_in_its_name():
    """Kubernetes names Secrets as it names most objects, and `meks secret` takes such a name."""
    text = (ROOT / "jobs" / "fetch-tokenizer.yaml").read_text()
    assert "token_secret: hugging-face" in text
    assert of_job(text.replace("token_secret: hugging-face", "token_secret: team-a.hf")) == []
    assert of_job(text.replace("token_secret: hugging-face", "token_secret: team_a"))
