"""The table of what other tools call a key; rows of `*_errors.yaml` try it on files."""

import json
import re
from pathlib import Path

import yaml

from megatron_eks.config.hints import of_other_tool

CONFIG = Path(__file__).parents[2] / "megatron_eks" / "config"


def test_every_remedy_names_keys_that_there_are():
    """What the table says to use is a key of a file, with its block before it where it has one."""
    table = yaml.safe_load((CONFIG / "aliases.yaml").read_text())
    files = [
        json.loads((CONFIG / "schema" / name).read_text()) for name in ("cluster.json", "job.json")
    ]
    blocks = [*files[:1], *(block for file in files for block in file["$defs"].values())]
    known = {key for block in blocks for key in block["properties"]}
    remedies = [each for of in ("keys", "options") for rows in table[of].values() for each in rows]
    named = [found[1] for each in remedies if (found := re.match("use ([a-z0-9_.]+)", each))]
    assert len(named) > 100
    assert [each for each in named if not known.issuperset(each.split("."))] == []


def test_a_key_of_no_tool_is_left_to_the_likest_one():
    """A slip of the pen is no other tool's key."""
    assert of_other_tool("num_layer", {"num_attention_heads", "num_layers"}) is None
    assert of_other_tool("shm_gb", {"shm_gib"}) is None
    assert of_other_tool("NCCL_DEBUG", {"tensor"}) is None
    assert of_other_tool("NODES", {"runtime", "nodes"}) is None
