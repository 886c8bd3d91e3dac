"""Joins the shards of a preparation: in order, so the bytes are those of a single process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from megatron_eks.programs.prepare import sidecar as prepare_sidecar
from megatron_eks.programs.prepare.job import (
    Options,
    Shard,
    digest,
    document_prefix,
    failure,
    shard_prefix,
)
from megatron_eks.programs.prepare.output import SKIPPED, Store
from megatron_eks.programs.prepare.tokenizer import Tokenizer

_SUMMED = ("lines", "documents", "skipped", "tokens")


def shard_recipe(recipe: dict[str, object], shard: Shard) -> str:
    """Return the identity of one shard."""
    return digest({**recipe, "shard": [shard.index, shard.count]})


def missing(options: Options, recipe: dict[str, object]) -> list[int]:
    """Return the shards that are not there, or belong to another preparation."""
    found = []
    for index in range(options.shards):
        shard = Shard(index, options.shards)
        sidecars = prepare_sidecar.read(
            shard_prefix(options.output_prefix, shard), options.json_keys
        )
        expected = shard_recipe(recipe, shard)
        if sidecars is None or any(sidecar["recipe"] != expected for sidecar in sidecars):
            found.append(index)
    return found


def merge(options: Options, recipe: dict[str, object], tokenizer: Tokenizer, store: Store) -> None:
    """Append shard to shard, and name the whole."""
    prefix = options.output_prefix
    shards = [shard_prefix(prefix, Shard(index, options.shards)) for index in range(options.shards)]
    store.clear()
    store.open({})
    for shard in shards:
        _check_sizes(shard, options.json_keys)
        store.append_shard(shard)
    every = [prepare_sidecar.read(shard, options.json_keys) or [] for shard in shards]
    sidecars = {
        key: prepare_sidecar.build(
            digest(recipe),
            recipe,
            key,
            _sum([sidecars[number]["inputs"] for sidecars in every]),
            tokenizer,
            files=store.write_index(key),
        )
        for number, key in enumerate(options.json_keys)
    }
    if not any(sidecar["documents"] for sidecar in sidecars.values()):
        raise failure(prefix, "the inputs hold no document", "correct --input or --json-key")
    store.publish({"recipe": digest(recipe)}, sidecars)


def remove(options: Options) -> None:
    """Remove the files of all shards; their content is in the whole."""
    for index in range(options.shards):
        prefix = shard_prefix(options.output_prefix, Shard(index, options.shards))
        for key in options.json_keys:
            for suffix in (".json", ".idx", ".bin"):
                Path(f"{document_prefix(prefix, key)}{suffix}").unlink(missing_ok=True)
        Path(f"{prefix}.{SKIPPED}").unlink(missing_ok=True)


def _check_sizes(prefix: str, keys: Sequence[str]) -> None:
    for key, sidecar in zip(keys, prepare_sidecar.read(prefix, keys) or [], strict=True):
        for kind in ("bin", "idx"):
            path = Path(f"{document_prefix(prefix, key)}.{kind}")
            size = path.stat().st_size
            if size != sidecar[kind]["bytes"]:
                raise failure(
                    path,
                    f"{size} bytes, but its sidecar says {sidecar[kind]['bytes']}",
                    "remove its .json and run this shard again",
                )


def _sum(shards: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Add up what the shards say of each input."""
    total = []
    for entries in zip(*shards, strict=True):
        entry = dict(entries[0])
        for name in _SUMMED:
            entry[name] = sum(each[name] for each in entries)
        entry["longest"] = max(each["longest"] for each in entries)
        if "sha256" in entry:
            # Whoever read an input as a whole knows it.
            entry["sha256"] = next((each["sha256"] for each in entries if each["sha256"]), None)
        total.append(entry)
    return total
