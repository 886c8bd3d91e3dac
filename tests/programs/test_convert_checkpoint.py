"""The checks around a conversion: whole source, right model, free target, whole result."""

import json

import pytest

from megatron_eks.programs import convert_checkpoint
from megatron_eks.programs.convert import hf_directory
from megatron_eks.programs.program import Report
from tests.programs import hf_model, saved
from tests.programs.run_program import Ended, run

SHARD = "model-00002-of-00002.safetensors"


@pytest.fixture
def model(tmp_path):
    """Return a Hugging Face directory."""
    return hf_model.write(tmp_path / "hf")


def convert(direction, source, target, *words, model="llama-3.1-8b") -> Ended:
    """Run the program."""
    options = ("--direction", direction, "--source", source, "--target", target, "--model", model)
    return run("convert_checkpoint", *options, *words)


def trained(root, reference):
    """Write what Megatron-Bridge saves."""
    checkpoint = saved.megatron(root, 500)
    config = f"tokenizer:\n  tokenizer_model: {reference}\n"
    (checkpoint / "run_config.yaml").write_text(config)
    (root / "latest_checkpointed_iteration.txt").write_text("500")
    return checkpoint


def checked(found) -> list[str]:
    """Return what a check finds."""
    return [str(finding) for finding in found]


def test_good_source_comes_as_far_as_the_bridge(model, tmp_path):
    """The test environment has no Megatron-Bridge: exit code 3, the remedy, and no target."""
    done = convert("import", model, tmp_path / "megatron")
    assert (done.code, done.summary["status"]) == (3, "not found")
    assert (done.summary["tensors"], done.summary["weight_bytes"] > 0) == (4, True)
    assert "use an image with megatron-bridge" in done.findings[0]
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]


def test_all_problems_of_a_source_are_said_at_once(model, tmp_path):
    """Nobody should wait for a queue three times to learn of three mistakes."""
    hf_model.configure(model, num_hidden_layers=16, rope_theta=10000)
    (model / "tokenizer.json").unlink()
    (model / SHARD).unlink()
    done = convert("import", model, tmp_path / "megatron")
    assert done.code == 4
    assert [finding.partition(" - ")[0] for finding in done.findings] == [
        f"error {model}/config.json: num_hidden_layers is 16, and llama-3.1-8b has 32",
        f"error {model}/config.json: rope_theta is 10000, and llama-3.1-8b has 500000",
        f"error {model}: none of tokenizer.json, tokenizer.model, vocab.json is in it",
        f"error {model}/{SHARD}: no such file",
    ]


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda data: data[:-1], "its header says"),
        (lambda data: data[:40], "too short for its header"),
        (lambda data: data[:3], "too short for its header"),
        (lambda data: b"<html>not found</html>" + data, "too short for its header"),
        (lambda data: data[:8] + b"x" + data[9:], "no safetensors file"),
        (lambda _: hf_model.safetensors(["layers.2.a"]), "1 tensors of the index are not in it"),
    ],
)
def test_damaged_shard_is_found(model, damage, found):
    """A header tells how long its file has to be, and which tensors are in it."""
    path = model / SHARD
    path.write_bytes(damage(path.read_bytes()))
    problems = checked(hf_directory.check_weights(model, {}))
    assert len(problems) == 1
    assert found in problems[0]


def test_single_file_needs_no_index(model):
    """A small model has one file."""
    for path in model.glob("model*"):
        path.unlink()
    assert (
        "neither model.safetensors.index.json nor"
        in checked(hf_directory.check_weights(model, {}))[0]
    )
    (model / "model.safetensors").write_bytes(hf_model.safetensors(["a", "b"]))
    facts: dict[str, object] = {}
    assert checked(hf_directory.check_weights(model, facts)) == []
    assert facts["tensors"] == 2


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({}, 0),
        ({"head_dim": 64}, 1),
        ({"num_key_value_heads": None}, 1),
        ({"rope_theta": None, "rope_parameters": {"rope_theta": 500000.0}}, 0),
        ({"rope_theta": None, "rope_parameters": {"rope_theta": 10000.0}}, 1),
    ],
)
def test_configuration_is_compared_with_the_model(model, values, found):
    """Values that a configuration leaves out are those that transformers takes."""
    hf_model.configure(model, **values)
    assert len(checked(hf_directory.check_config(model, "llama-3.1-8b"))) == found


def test_unknown_model_is_only_a_warning(model):
    """Other models convert too; nothing about them is known here."""
    found = checked(hf_directory.check_config(model, "my-own"))
    assert [each.partition(":")[0] for each in found] == ["warning my-own"]


def test_target_that_holds_something_is_left_alone(model, tmp_path):
    """An empty directory is free."""
    target = tmp_path / "megatron"
    target.mkdir()
    assert convert("import", model, target).code == 3
    (target / "mine").write_text("mine")
    done = convert("import", model, target)
    assert done.code == 4
    assert "there is something already" in done.findings[0]
    assert "target and source are one directory" in convert("import", model, model).findings[0]


def test_space_is_checked_first(model, tmp_path):
    """The weights are written once more."""
    found = checked(convert_checkpoint.check_target(tmp_path / "megatron", model, 10**18))
    assert "about 1,050,000,000.0 GB needed" in found[0]


def test_export_takes_the_checkpoint_that_the_tracker_names(model, tmp_path):
    """Or an iteration's directory itself; configuration and tokenizer are the original's."""
    checkpoint = trained(tmp_path / "run", model)
    for source in (tmp_path / "run", checkpoint):
        done = convert("export", source, tmp_path / "out")
        assert done.code == 3
        assert done.summary["checkpoint"] == str(checkpoint)
        assert done.summary["hf_config"] == str(model)


def test_export_of_what_bridge_has_not_saved_is_refused(model, tmp_path):
    """Megatron-LM's checkpoints carry no run_config.yaml, so nothing says what the model is."""
    (trained(tmp_path / "run", model) / "run_config.yaml").unlink()
    done = convert("export", tmp_path / "run", tmp_path / "out")
    assert done.code == 4
    assert "no run_config.yaml" in done.findings[0]


def test_export_without_the_original_asks_for_it(tmp_path):
    """The path in the checkpoint may be another machine's."""
    trained(tmp_path / "run", tmp_path / "gone")
    done = convert("export", tmp_path / "run", tmp_path / "out")
    assert done.code == 4
    assert "the Hugging Face directory it is based on is not there" in done.findings[0]


def test_export_of_an_unfinished_save_is_refused(model, tmp_path):
    """The tracker names a checkpoint that is not whole."""
    (trained(tmp_path / "run", model) / "metadata.json").unlink()
    done = convert("export", tmp_path / "run", tmp_path / "out")
    assert done.code == 4
    assert "no whole checkpoint" in done.findings[0]


def test_result_is_checked_both_ways(model, tmp_path):
    """What was written is as whole as a source has to be."""
    facts: dict[str, object] = {}
    assert checked(convert_checkpoint.check_result("export", model, facts)) == []
    (model / SHARD).unlink()
    assert checked(convert_checkpoint.check_result("export", model, facts)) != []
    trained(tmp_path / "run", model)
    assert checked(convert_checkpoint.check_result("import", tmp_path / "run", facts)) == []
    assert facts["result"] == "iter_0000500"
    (tmp_path / "run" / "latest_checkpointed_iteration.txt").unlink()
    assert checked(convert_checkpoint.check_result("import", tmp_path / "run", facts)) != []


def test_interrupted_conversion_leaves_no_target(model, tmp_path, monkeypatch):
    """What is half written goes, and the target never appears."""
    target = tmp_path / "megatron"

    class Bridge:
        """Stands for Megatron-Bridge, which cannot be installed without CUDA."""

    def stop(_options, _bridge, staging, _facts):
        saved.megatron(staging, 0)
        raise KeyboardInterrupt

    monkeypatch.setattr(convert_checkpoint, "_load_bridge", Bridge)
    monkeypatch.setattr(convert_checkpoint, "convert", stop)
    words = ["--direction", "import", "--source", str(model), "--target", str(target)]
    with pytest.raises(KeyboardInterrupt):
        convert_checkpoint.main([*words, "--model", "llama-3.1-8b"], Report())
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]


def test_configuration_that_cannot_be_read_is_said(model):
    """Torn JSON, or something else under the name."""
    (model / "config.json").write_text("{")
    assert "no JSON" in checked(hf_directory.check_config(model, "llama-3.1-8b"))[0]
    (model / "config.json").write_text(json.dumps([]))
    assert "no JSON object" in checked(hf_directory.check_config(model, "llama-3.1-8b"))[0]


@pytest.mark.parametrize(
    ("scaling", "found"),
    [
        ({"rope_type": "llama3", "factor": 32.0, "high_freq_factor": 4.0}, ""),
        ({"rope_type": "linear", "factor": 2.0}, ""),
        (None, ""),
        ({"rope_type": "yarn", "factor": 4.0}, "rope_type is yarn, which Megatron-Bridge passes"),
        ({"type": "dynamic", "factor": 4.0}, "rope_type is dynamic"),
        ({"rope_type": "llama3", "low_freq_factor": 2.0}, "low_freq_factor is 2.0, and Megatron"),
    ],
)
def test_positions_that_upstream_would_change_are_refused(model, scaling, found):
    """It converts them without a word, and the logits would differ."""
    hf_model.configure(model, model_type="llama", rope_scaling=scaling)
    problems = checked(hf_directory.check_rope(model))
    assert len(problems) == bool(found)
    assert found in "".join(problems)
