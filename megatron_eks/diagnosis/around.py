"""What a log said before a line, where that decides what the line means."""

import re

from megatron_eks.diagnosis.lines import Line

_SAVING = re.compile(
    r"\b[Ss]aving (\w+ ){0,3}(checkpoint|model|state|weights|optimizer)"
    r"|, in (_?save\w*|\w+_save)\b|\b(save_file|torch\.save)\("
)
_SAVED = re.compile(
    r"[Ss]uccessfully (saved|loaded)|\b[Ll]oading (\w+ ){0,3}(checkpoint|model|state|weights)"
    r"|, in (_?load\w*|\w+_load)\b"
)
# nccl_ofi_net.cpp of aws-ofi-nccl; libfabric's own lines name the provider after the process.
_PROVIDER = re.compile(
    r"[Ss]elected [Pp]rovider is ([\w-]+)|^libfabric:\d+:\d+:+(efa):|(?:EFA|Unreachable remote)\b"
)


class Around:
    """The words that a signature's `around` is looked for in."""

    def __init__(self) -> None:
        self._saving = False
        self._provider = ""
        self.words = ""

    def see(self, line: Line) -> None:
        """Take a line in."""
        text = line.text
        if line.step is not None or _is(_SAVED, text, "oad", "saved"):
            self._saving = False
        elif _is(_SAVING, text, "av"):
            self._saving = True
        if _is(_PROVIDER, text, "rovider", "libfabric:", "EFA", "Unreach") and (
            found := _PROVIDER.search(text)
        ):
            self._provider = found[1] or "efa"
        self.words = f"{'saving ' if self._saving else ''}{self._provider}"


def _is(pattern: "re.Pattern[str]", text: str, *words: str) -> bool:
    return any(word in text for word in words) and bool(pattern.search(text))
