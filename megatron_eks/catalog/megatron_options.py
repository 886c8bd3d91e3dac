"""Every option of Megatron-LM's training program: its name, its setting, and what may follow."""

from megatron_eks.catalog.tables import sections

_TABLE = sections("megatron_options.txt")
VERSION = _TABLE["version"].strip()
"""Of megatron-core."""


def _settings(names: str, *, several: bool = False) -> dict[str, str]:
    """Return the settings by the options that take one word, or several."""
    entries = sorted(name.partition(":")[0] for name in names.split())
    pairs = (entry.partition("=")[::2] for entry in entries if ("+" in entry) is several)
    plain = ((name.rstrip("+"), setting) for name, setting in pairs)
    return {f"--{name}": setting or name.replace("-", "_") for name, setting in plain}


_WITH_WORDS = "".join(_TABLE[kind] for kind in ("whole", "numbers", "choices", "rest"))
FLAGS = _settings(_TABLE["flags"])
"""Settings by options without a value."""
SINGLE = _settings(_WITH_WORDS)
"""Settings by options with one value."""
OPTIONS = FLAGS | SINGLE | _settings(_WITH_WORDS, several=True)
"""Settings by all options."""
WORDS = {
    f"--{entry.partition('=')[0].rstrip('+')}": tuple(words.split("|"))
    for entry, words in (each.split(":") for each in _TABLE["choices"].split())
}
"""Options of words, and the words."""
