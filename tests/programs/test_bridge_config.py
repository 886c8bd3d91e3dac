"""The values of a Megatron-Bridge job in the recipe's places, and unknown ones in words."""

import enum
from dataclasses import dataclass, field

import pytest

from megatron_eks.programs import train_bridge
from megatron_eks.programs.program import StopError
from megatron_eks.programs.start import bridge_config
from megatron_eks.programs.start.preconditions import MegatronArguments
from tests.programs.bridge_job import JOB


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
    values = bridge_config.values_of(JOB)
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
    values = bridge_config.values_of({"data": {"blend": parts, "split": [98, 2, 0]}})
    assert values["dataset.blend"] == (["/a", "/b"], [0.7, 0.3])
    assert MegatronArguments(train_bridge.guard_words(values)).values("--data-path") == (
        "0.7",
        "/a",
        "0.3",
        "/b",
    )
    assert MegatronArguments(train_bridge.guard_words(values)).value("--split") == "98,2,0"


def test_overrides_come_last():
    """What the job says by name beats what its blocks say."""
    values = bridge_config.values_of({**JOB, "overrides": {"optimizer.lr": 2e-5}})
    assert values["optimizer.lr"] == 2e-5


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


def test_word_becomes_a_member():
    """The type of the value that is there says which members there are."""

    class Backend(enum.Enum):
        """Two of Megatron's."""

        auto = 1
        flash = 2

    @dataclass
    class Place:
        """One value that is there, and one that is declared alone."""

        now: object = Backend.auto
        later: Backend | None = None

    config = Config(ft=Place())
    assert applied({"ft.now": "flash", "ft.later": "flash"}, config) == (config, [])
    assert config.ft == Place(Backend.flash, Backend.flash)
    assert applied({"ft.later": "flush"}, config)[1] == [
        "error ft.later: 'flush' is no member of Backend - write one of auto, flash"
    ]


def test_one_value_of_a_precision_is_set():
    """The recipe has a word for all of them, which Megatron-Bridge resolves."""
    config = Config()
    values = {"mixed_precision": "fp8", "mixed_precision.lr": 0.5}
    found = list(bridge_config.apply(config, values, lambda _name: Optimizer()))
    assert (found, config.mixed_precision) == ([], Optimizer(lr=0.5))
