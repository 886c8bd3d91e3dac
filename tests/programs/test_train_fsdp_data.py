"""What train_fsdp trains on, and what it refuses before or while it reads."""

import json

import pytest

from tests.programs.megatron_files import write_data_set
from tests.programs.trainer_files import END, TINY, Run, python_says, texts, write_jsonl

pytestmark = pytest.mark.programs


def errors(done) -> list[str]:
    """Return the error lines of a run that ended in words, not in a traceback."""
    assert "Traceback" not in done.stderr, done.stderr
    return [line for line in done.stderr.splitlines() if line.startswith("error")]


@pytest.fixture
def run(programs_python, tmp_path):
    """Return a run of one rank that has not begun."""
    return Run(tmp_path, programs_python)


def test_indexed_data(run, tmp_path):
    """Megatron's two files serve as they are, and the tokenizer is not even opened."""
    prefix = tmp_path / "data" / "corpus_text_document"
    write_data_set(prefix, [[*text.encode(), END] for text in texts()])
    run.config["data"] = {"dataset": str(prefix), "tokenizer": "/nowhere"}
    done = run.alone()
    assert done.returncode == 0, done.stderr
    losses = run.losses()
    assert losses[-1] < 0.75 * losses[0]
    assert run.metrics()[-1]["validation_loss"] < 0.75 * losses[0]


@pytest.mark.long
def test_stream_of_hugging_face(run, tmp_path):
    """A data set of two splits: one is trained on, the other validates; a resume goes on in it."""
    data = tmp_path / "dataset"
    write_jsonl(data / "train.jsonl", texts())
    write_jsonl(data / "validation.jsonl", texts()[:10])
    run.config["data"]["dataset"] = str(data)
    done = run.alone()
    assert done.returncode == 0, done.stderr
    resumed = run.resumed("resumed", without="iter_0000012")
    done = resumed.alone()
    assert json.loads(done.stdout)["resumed_from"] == 8
    assert resumed.losses() == pytest.approx(run.losses(), abs=1e-6)
    assert run.losses()[-1] < 0.75 * run.losses()[0]
    assert run.metrics()[-1]["validation_loss"] < 0.75 * run.losses()[0]


def test_bad_line_ends_the_run_with_its_place(run, tmp_path):
    """Not skipped, not trained on: somebody has to look at it."""
    path = tmp_path / "corpus.jsonl"
    lines = path.read_text().splitlines()
    lines[2] = lines[2][:-1]
    path.write_text("\n".join(lines))
    done = run.alone()
    assert done.returncode == 4
    assert errors(done) == [
        (
            f"error train_fsdp: {path}:3: Expecting ',' delimiter: line 1 column "
            f"{len(lines[2]) + 1} (char {len(lines[2])}) - correct it"
        )
    ]


def test_what_is_wrong_at_the_start_is_said_at_once(run):
    """Before a process talks to another; a finding of the world is exit code 4."""
    run.config["data"]["dataset"] = "/nowhere/corpus.jsonl"
    run.config["checkpoint"] |= {"directory": "/dev/null/x", "pretrained": "/nowhere"}
    done = run.alone()
    assert done.returncode == 4
    data, directory, base = errors(done)
    assert data == "error /nowhere/corpus.jsonl: no such file - correct data.dataset"
    assert directory.startswith("error /dev/null/x: cannot be written: Not a directory - give user")
    assert base == (
        "error /nowhere: no such directory - correct checkpoint.pretrained, or download the "
        "weights again"
    )
    assert json.loads(done.stdout)["status"] == "refused"


def test_wrong_file_is_exit_code_2(run):
    """Whatever else is wrong as well: who reads the code corrects the file first."""
    run.config["data"]["dataset"] = "/nowhere/corpus"
    run.config["training"]["sequence_length"] = 129
    done = run.alone()
    assert done.returncode == 2
    assert errors(done) == [
        "error training.sequence_length: 129, and the model has 128 positions - use at most 128",
        (
            "error /nowhere/corpus: neither data here nor a name of Hugging Face's - name a "
            ".jsonl file, an indexed prefix, or a Hugging Face data set"
        ),
    ]


@pytest.mark.parametrize(
    ("block", "values", "expected"),
    [
        (
            "model",
            {"vocab_size": 200},
            (
                "error train_fsdp: ROOT/tokenizer: 257 tokens, and the model knows 200 - use the "
                "model's own tokenizer, or raise model.vocab_size"
            ),
        ),
        (
            "data",
            {"tokenizer": "/nowhere"},
            "error train_fsdp: /nowhere/tokenizer.json: no such file - name a folder that holds it",
        ),
    ],
)
def test_tokenizer_that_does_not_serve(run, block, values, expected):
    """In words, before the first step."""
    run.config[block] |= values
    done = run.alone()
    assert [line.replace(str(run.root), "ROOT") for line in errors(done)] == [expected]
    assert done.returncode == 4


def test_tokens_of_another_vocabulary(run, tmp_path):
    """On a GPU this would be an assertion in a kernel, long after the start."""
    prefix = write_data_set(tmp_path / "data" / "other", [[7, 300] * 100])
    run.config["data"]["dataset"] = str(prefix)
    done = run.alone()
    assert done.returncode == 4
    assert errors(done) == [
        (
            "error train_fsdp: a token is 300, and the model knows 260 - prepare the data with the "
            "model's tokenizer, or raise model.vocab_size"
        )
    ]


def test_weights_of_another_model(run, programs_python, tmp_path):
    """Shapes, and what shapes do not tell, are compared before a weight is read."""
    base = tmp_path / "base"
    base.mkdir()
    code = """
import json, sys
import torch
from safetensors.torch import save_file
from megatron_eks.programs.trainer.model import Decoder
from megatron_eks.programs.trainer.shape import read_model
model = read_model(json.loads(sys.argv[2]), base_weights=False, findings=[])
save_file(Decoder(model).state_dict(), sys.argv[1] + "/model.safetensors")
print("null")
"""
    python_says(programs_python, code, base, json.dumps({**TINY, "ffn_hidden_size": 96}))
    (base / "config.json").write_text(json.dumps({"rope_theta": 500000.0, "rms_norm_eps": 1e-5}))
    run.config["checkpoint"]["pretrained"] = str(base)
    run.config["model"]["num_layers"] = 3
    done = run.alone()
    assert done.returncode == 4
    found = errors(done)
    assert (
        f"error {base}/config.json: rotary_base is 500000.0, and the model has 10000" in found[-1]
    )
    assert "9 weights are missing, model.layers.2.input_layernorm.weight for one" in found[-2]
    assert "mlp.gate_proj.weight: (96, 64), and the model has (128, 64)" in found[0]
