"""Megatron's command line as the guards read it: option names and the words that follow them."""

from collections.abc import Sequence


class MegatronArguments:
    """The words for Megatron, by option; of an option given twice the last one counts."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        self._values: dict[str, list[str]] = {}
        values: list[str] = []
        for word in self.words:
            if word.startswith("--"):
                name, equals, value = word.partition("=")
                values = self._values[name] = [value] if equals else []
            else:
                values.append(word)

    def values(self, option: str) -> tuple[str, ...]:
        """Return the words after an option; empty if it is absent or a flag."""
        return tuple(self._values.get(option, ()))

    def value(self, option: str) -> str | None:
        """Return the word after an option."""
        return next(iter(self.values(option)), None)
