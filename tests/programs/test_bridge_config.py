"""The values of a Megatron-Bridge job in the recipe's places, and unknown ones in words."""

import json
import subprocess
from dataclasses import dataclass, field

import bridge_config
import pytest
import train_bridge
from program import StopError

from tests.programs.bridge_job import JOB
from tests.programs.run_program import TORCHRUN

# Where Megatron-Bridge's classes get the fields from that the values go to; its own cannot be
# imported without CUDA.
CORE_CLASSES = {
    "model": "megatron.core.transformer.TransformerConfig",
    "ddp": "megatron.core.distributed.DistributedDataParallelConfig",
    "optimizer": "megatron.core.optimizer.OptimizerConfig",
    "train": "megatron.training.config.TrainingConfig",
    "validation": "megatron.training.config.ValidationConfig",
    "scheduler": "megatron.training.config.SchedulerConfig",
    "logger": "megatron.training.config.LoggerConfig",
    "rng": "megatron.training.config.RNGConfig",
    "dist": "megatron.training.config.DistributedInitConfig",
    "checkpoint": "megatron.training.config.CheckpointConfig",
    "dataset": "megatron.core.datasets.gpt_dataset.GPTDatasetConfig",
}
# What Megatron-Bridge 0.6 adds (models/gpt_provider.py, training/config.py, tokenizers/config.py).
OF_BRIDGE = {
    "model.seq_length",
    "dataset.seq_length",
    "dataset.num_workers",
    "checkpoint.pretrained_checkpoint",
    "checkpoint.most_recent_k",
}


@dataclass
class Model:
    """A few fields of a recipe's model."""

    num_layers: int = 32
    hidden_size: int = 4096
    seq_length: int = 8192
    recompute_granularity: str | None = None
    sequence_parallel: bool = False


@dataclass
class Optimizer:
    """A few fields of a recipe's optimizer."""

    lr: float = 3e-4
    use_distributed_optimizer: bool = True


@dataclass
class Config:
    """A recipe's configuration."""

    model: Model = field(default_factory=Model)
    optimizer: Optimizer = field(default_factory=Optimizer)
    mixed_precision: object = "bf16_mixed"
    ft: object = None


def applied(values, config=None):
    """Apply values; return the configuration and the findings."""
    config = config or Config()
    return config, [str(finding) for finding in bridge_config.apply(config, values)]


def test_values_of_a_job():
    """Every field of the blocks has its place, and some have two."""
    values, found = bridge_config.values_of(JOB)
    assert found == []
    assert values["model.tensor_model_parallel_size"] == 4
    assert values["model.seq_length"] == values["dataset.seq_length"] == 4096
    assert values["optimizer.weight_decay"] == values["scheduler.end_weight_decay"] == 0.1
    assert values["dataset.blend"] == (["/d/text"], None)
    assert values["dataset.split"] == "98,2,0"
    assert values["checkpoint.save"] == values["checkpoint.load"] == "/c"
    assert values["mixed_precision"] == "bf16_mixed"
    assert values["model.sequence_parallel"] is True


def test_blend_has_weights():
    """Prefixes and weights are two lists."""
    parts = [{"weight": 0.7, "prefix": "/a"}, {"weight": 0.3, "prefix": "/b"}]
    values, _ = bridge_config.values_of({"data": {"blend": parts}})
    assert values["dataset.blend"] == (["/a", "/b"], [0.7, 0.3])
    assert train_bridge.guard_words(values).values("--data-path") == ("0.7", "/a", "0.3", "/b")


def test_overrides_come_last():
    """What the job says by name beats what its blocks say."""
    values, _ = bridge_config.values_of({**JOB, "overrides": {"optimizer.lr": 2e-5}})
    assert values["optimizer.lr"] == 2e-5


def test_unknown_field_of_a_block_is_an_error():
    """A field that is not read would change nothing."""
    _, found = bridge_config.values_of({"training": {"learning_rat": 1}, "trainig": {}})
    assert [str(each) for each in found] == [
        "error trainig: no such field - did you mean 'training'?",
        "error training.learning_rat: no such field - did you mean 'learning_rate'?",
    ]


def test_values_reach_the_recipe():
    """By attribute path, whatever was there."""
    values = {"model.seq_length": 4096, "optimizer.lr": 1e-5, "mixed_precision": "fp8"}
    config, found = applied({**values, "model.recompute_granularity": "full"})
    assert found == []
    assert (config.model.seq_length, config.optimizer.lr) == (4096, 1e-5)
    assert (config.mixed_precision, config.model.recompute_granularity) == ("fp8", "full")


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({"model.seq_lenght": 1}, "model.seq_lenght: no such field - did you mean 'seq_length'?"),
        ({"modle.seq_length": 1}, "modle: no such field - did you mean 'model'?"),
        ({"ft.enabled": True}, "ft.enabled: ft is not used by this recipe - remove the override"),
        (
            {"optimizer.lr": "1e-5"},
            "optimizer.lr: '1e-5' is str, and the recipe has 0.0003 - write a value of type float",
        ),
        (
            {"model.sequence_parallel": 1},
            (
                "model.sequence_parallel: 1 is int, and the recipe has False - "
                "write a value of type bool"
            ),
        ),
        (
            {"model.num_layers": 1.5},
            "model.num_layers: 1.5 is float, and the recipe has 32 - write a value of type int",
        ),
    ],
)
def test_value_without_a_place_is_said_in_words(values, found):
    """A dataclass takes any attribute, and Megatron would never read it."""
    assert applied(values)[1] == [f"error {found}"]


def test_recipe_of_another_model_is_an_error():
    """The job's name and the recipe's model belong together."""
    config = Config(model=Model(num_layers=16))
    found = [str(each) for each in bridge_config.compare_model(config, "llama-3.1-8b")]
    assert found == [
        (
            "error --recipe: its model has num_layers 16, and the job's model 32 - name the recipe "
            "of this model, or correct the job's model"
        )
    ]
    assert list(bridge_config.compare_model(Config(), {"preset": "llama-3.1-8b"})) == []
    assert list(bridge_config.compare_model(Config(), {"num_layers": 30})) != []


def test_recipe_that_is_not_there_has_neighbours():
    """A name with a slip is answered with the names that come close."""
    recipes = type("recipes", (), {"values_of_config": lambda: 1})
    with pytest.raises(StopError, match=r"did you mean values_of_config\?") as stopped:
        train_bridge.find_recipe(recipes, "valuesof_config")
    assert stopped.value.code == 3


def test_recipe_reads_the_configuration_that_was_fetched(tmp_path):
    """No rank asks Hugging Face, and afterwards the class is as it was."""

    class Bridge:
        """Stands for AutoBridge, which cannot be imported without CUDA."""

        @classmethod
        def from_hf_pretrained(cls, name):
            """Return what would be read."""
            return name

    with train_bridge.configuration_from(Bridge, tmp_path):
        assert Bridge.from_hf_pretrained("meta-llama/Llama-3.1-8B") == "meta-llama/Llama-3.1-8B"
    (tmp_path / "config.json").write_text("{}")
    with train_bridge.configuration_from(Bridge, tmp_path):
        assert Bridge.from_hf_pretrained("meta-llama/Llama-3.1-8B") == str(tmp_path)
    assert Bridge.from_hf_pretrained("meta-llama/Llama-3.1-8B") == "meta-llama/Llama-3.1-8B"


@pytest.mark.programs
def test_places_are_fields_of_megatrons_classes():
    """Every place that a job's values go to exists in the pinned Megatron core."""
    lines = [
        "import dataclasses, importlib, json",
        f"classes = {CORE_CLASSES!r}",
        "def names(path):",
        "    module, name = path.rsplit('.', 1)",
        "    found = getattr(importlib.import_module(module), name)",
        "    return [field.name for field in dataclasses.fields(found)]",
        "print(json.dumps({block: names(path) for block, path in classes.items()}))",
    ]
    done = subprocess.run(  # noqa: S603 -- this test's own lines
        [str(TORCHRUN.with_name("python")), "-W", "ignore", "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        check=True,
    )
    fields = json.loads(done.stdout.splitlines()[-1])
    job = {**JOB, "data": {**JOB["data"], "cache_dir": "/x"}}
    job["training"] = {**JOB["training"], "decay_iters": 5, "recompute_layers": 1}
    values, _ = bridge_config.values_of(job)
    unknown = {
        name
        for name in values
        if "." in name
        and not name.startswith("tokenizer.")
        and name.partition(".")[2] not in fields[name.partition(".")[0]]
    }
    assert unknown <= OF_BRIDGE
