"""The keys of a job file, by the names that Megatron-LM and Megatron-Bridge have for them."""

from collections.abc import Iterator

from megatron_eks.catalog.tables import entries, sections

_TABLE = entries(sections("job_keys.txt")["keys"])


def _bridge() -> Iterator[tuple[str, str, str]]:
    """Yield the names of Megatron-Bridge with what is marked before each, and its key."""
    for key, said in _TABLE:
        for marked in said.partition("|")[2].split():
            name = marked.lstrip("-?+")
            yield name, marked.removesuffix(name), key


OF_OPTIONS = {f"--{name}": key for key, said in _TABLE for name in said.partition("|")[0].split()}
"""What options of Megatron-LM follow from; all others that the plan sets have no key."""

PLANNED = {name: key for name, mark, key in _bridge() if mark in {"", "-"}}
"""What values of Megatron-Bridge follow from, with which a run is planned."""

OPEN = {name: key for name, mark, key in _bridge() if "?" in mark}
"""What may be overridden where the job file leaves its key open, and contradicts it elsewhere."""

SAME = [(name, key) for name, mark, key in _bridge() if "-" not in mark]
"""Values of Megatron-Bridge that are those of a key."""
