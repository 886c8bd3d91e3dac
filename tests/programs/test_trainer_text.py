"""Samples from texts: the same on any ranks, resumed anywhere, each document once an epoch."""

import json

import pytest

from tests.programs.trainer_files import python_says, texts, write_jsonl, write_tokenizer

pytestmark = pytest.mark.programs

# Takes samples of the job on so many ranks, from a state on, and says them and the last state.
TAKE = """
import json, sys
from pathlib import Path
from megatron_eks.programs.trainer.batches import Batches
from megatron_eks.programs.trainer.documents import JsonLines
from megatron_eks.programs.trainer.text import TextSamples, Tokenizer, merge
path, directory, plan, length = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])
tokenizer = Tokenizer(directory)
state, consumed, taken = {}, 0, []
for ranks, steps in plan:
    samples = [TextSamples(JsonLines(Path(path)), tokenizer, length) for _ in range(ranks)]
    batches = []
    for rank, source in enumerate(samples):
        source.restore(state)
        batches.append(Batches(source, consumed=consumed, per_rank=12 // ranks, rank=rank,
            ranks=ranks, ahead=rank % 2, vocabulary=260))
    for _ in range(steps):
        step = {}
        made = [batch.next() for batch in batches]
        for rank, batch in enumerate(made):
            for place, tokens in enumerate(batch.sequences):
                step[place * ranks + rank] = tokens[:-1].tolist()
        taken += [step[place] for place in sorted(step)]
        state, consumed = merge([batch.state for batch in made]), consumed + 12
    for batch in batches:
        batch.close()
held = [tokens.tolist() for tokens in samples[0].validation(1000)]
print(json.dumps([taken, held]))
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Return a JSONL file of this repository's texts, with a blank line, and a tokenizer."""
    root = tmp_path_factory.mktemp("text")
    path = write_jsonl(root / "corpus.jsonl", texts())
    path.write_text("\n" + path.read_text())
    return path, write_tokenizer(root / "tokenizer")


@pytest.fixture(scope="module")
def on_one_rank(programs_python, corpus):
    """Return the first 96 samples of the job."""
    return python_says(programs_python, TAKE, *corpus, json.dumps([[1, 8]]), 64)[0]


@pytest.mark.parametrize(
    "plan",
    [
        [[2, 8]],
        [[3, 8]],
        [[1, 1], [4, 2], [12, 3], [2, 1], [1, 1]],
    ],
)
def test_samples_do_not_depend_on_ranks_or_restarts(programs_python, corpus, on_one_rank, plan):
    """Whatever reads them, sample k of the job is the same tokens."""
    taken, _ = python_says(programs_python, TAKE, *corpus, json.dumps(plan), 64)
    assert taken == on_one_rank


def test_each_document_comes_once_an_epoch(programs_python, tmp_path):
    """Streams of a small corpus lose nothing: in the first epochs each text counts equally."""
    documents = [f"document {number:03d} " * 4 for number in range(100)]
    path = write_jsonl(tmp_path / "corpus.jsonl", documents)
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    taken, held = python_says(programs_python, TAKE, path, tokenizer, "[[1, 400]]", 16)
    trained = "".join(chr(token) if token < 256 else "|" for tokens in taken for token in tokens)
    validated = "".join(chr(token) if token < 256 else "|" for tokens in held for token in tokens)
    out = {f"{number:03d}" for number in range(19, 100, 20)}
    assert {f"{number:03d}" for number in range(100) if f"ent {number:03d} doc" in trained} == {
        f"{number:03d}" for number in range(100)
    } - out
    assert {number for number in out if f" {number} " in validated} == out


def test_corpus_without_text_ends(programs_python, tmp_path):
    """Empty lines are no reason to read for ever."""
    path = write_jsonl(tmp_path / "corpus.jsonl", ["", "", ""])
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    code = TAKE.replace("print(", "pass #").replace(
        "made = [batch.next() for batch in batches]",
        "try: batches[0].next()\n        except ValueError as problem:\n"
        "            sys.exit(print(json.dumps(str(problem))))",
    )
    said = python_says(programs_python, code, path, tokenizer, "[[1, 1]]", 16)
    assert said == "the data set has no text to train on - correct data.dataset"
