"""Folders of weights that are named after another model than the job's."""

from pathlib import Path

import pytest
import yaml

from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import parse_job
from megatron_eks.plan.jobs.weights import check_sources

JOBS = Path(__file__).parents[3] / "jobs"
RUN, IMPORT, FETCH = "megatron-cpt-techpulse", "import-llama-3-1-8b", "fetch-llama-3-1-8b"


def warned(file: str, **changes: object) -> list[str]:
    """Check a shipped job alone with some of its keys changed, blocks key by key."""
    values = yaml.safe_load((JOBS / f"{file}.yaml").read_text())
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(values[key], dict)
        values[key] = values[key] | value if both else value
    # YAML 1.1, which writes it, has no number 1e-05.
    document = read_mapping(yaml.safe_dump(values).replace("1e-", "1.0e-"), "j.yaml")
    job, found = parse_job(document)
    assert job is not None, found
    return [f"{each.level} {each.path[-1]}: {each.found}" for each in check_sources(job, ())]


@pytest.mark.parametrize(
    ("file", "changes", "place", "named"),
    [
        (IMPORT, {"model": "llama-2-13b"}, "source", "llama-3.1-8b"),
        (IMPORT, {"source": "/shared/models/Llama-3.2-1B"}, "source", "llama-3.2-1b"),
        (IMPORT, {"target": "/shared/checkpoints/llama-2-7b-base"}, "target", "llama-2-7b"),
        ("export-techpulse", {"target": "/shared/models/mistral-7b"}, "target", "mistral-7b"),
        (FETCH, {"directory": "/shared/models/llama-3.1-70b"}, "directory", "llama-3.1-70b"),
        (RUN, {"model": "llama-3.2-3b"}, "pretrained", "llama-3.1-8b"),
        (RUN, {"checkpoint": {"pretrained": "/shared/b/llama-2-7b-hf"}}, "pretrained", "llama-2-"),
    ],
)
def test_another_model(file, changes, place, named):
    """A name is no proof, so it warns once."""
    (line,) = warned(file, **changes)
    assert line.startswith(f"warning {place}: /shared/")
    assert f"has the name of {named}" in line


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        (IMPORT, {}),
        (IMPORT, {"source": "/shared/models/base", "target": "/shared/checkpoints/base"}),
        # A size that no preset has, and a name of two models.
        (IMPORT, {"source": "/shared/models/llama-3.1-8b-from-llama-3.1-70b"}),
        (IMPORT, {"source": "/shared/models/my-llama-2-7bx"}),
        (IMPORT, {"source": "/shared/models/llama-2-7b/merged"}),
        (RUN, {"checkpoint": {"directory": "/shared/checkpoints/like-mistral-7b"}}),
        (FETCH, {"model": "Qwen/Qwen2.5-7B"}),
        (FETCH, {"directory": "/shared/models/meta-llama-3.1-8b-v2"}),
    ],
)
def test_no_other_model(file, changes):
    """Folders of the model's name, of none, and where a run saves."""
    assert warned(file, **changes) == []


FEWER = {"preset": "llama-3.1-8b", "num_layers": 16, "hidden_size": 4096}


def test_weights_of_the_presets_name_have_its_sizes():
    """A size that is the preset's own is no change."""
    (line,) = warned(RUN, model=FEWER)
    assert line == ("warning num_layers: 16, and weights of llama-3.1-8b have 32: they do not fit")


@pytest.mark.parametrize(
    ("model", "pretrained"),
    [
        # A pruned model is its preset with fewer layers, and its folder says so.
        (FEWER, "/shared/checkpoints/llama-3.1-8b-pruned"),
        (FEWER, None),
        # Tokens may be added to a model.
        ({"preset": "llama-3.1-8b", "vocab_size": 128512}, "/shared/checkpoints/llama-3.1-8b-hf"),
    ],
)
def test_other_weights_may_have_any_size(model, pretrained):
    """Only the preset's own name says which sizes weights have."""
    assert warned(RUN, model=model, checkpoint={"pretrained": pretrained}) == []
