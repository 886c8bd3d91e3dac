"""Which patterns a line can fit at all: by the words that each of them cannot do without.

Hundreds of patterns tried on every line of a large log take a millisecond a line; nearly all
lines hold none of the words.
"""

import re
from collections.abc import Iterable, Iterator
from re import _constants as sre  # type: ignore[attr-defined]  # how Python itself reads patterns
from re import _parser  # type: ignore[attr-defined]
from typing import Any

_GRAM = 4
_SHORTEST = 3
_LONG = 8
"""From here on a longer word is no better."""
_KNOWN = 512
"""Shapes of lines that are kept in mind."""

_DIGITS = str.maketrans("123456789", "000000000")
_DIGIT = re.compile(r"\d")
_ANY_DIGIT = re.compile(r"\{\d+(?:,\d*)?\}")
"""What a pattern may hold of digits and still take any for any other."""
_REPEATS = frozenset({sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT})


def shape(text: str) -> str:
    """Return a text as all are that differ from it in their digits alone."""
    return text.translate(_DIGITS)


def words(pattern: str) -> frozenset[str]:
    """Return words of which every text that fits a pattern holds one; none if there are none."""
    parsed = _parser.parse(pattern)
    # Whatever its case: a text is not looked at so.
    return frozenset() if parsed.state.flags & re.IGNORECASE else frozenset(_words(parsed) or ())


def _words(parsed: Iterable[tuple[Any, Any]]) -> list[str] | None:
    """Choose for a sequence: all have to be there, so one of them is enough."""
    choices: list[list[str] | None] = []
    run = ""
    for kind, given in parsed:
        if kind is sre.LITERAL:
            run += chr(given)
        elif kind is not sre.AT:
            choices.append([run])
            run = ""
            if kind in _REPEATS and given[0]:
                choices.append(_words(given[2]))
            elif kind is sre.SUBPATTERN and not given[1] & re.IGNORECASE:
                choices.append(_words(given[3]))
            elif kind is sre.BRANCH:
                every = [_words(each) for each in given[1]]
                choices.append(
                    [word for each in every if each for word in each] if all(every) else None
                )
    choices.append([run])
    fit = [each for each in choices if each and min(map(len, each)) >= _SHORTEST]
    return max(fit, key=lambda each: (min(*map(len, each), _LONG), -len(each)), default=None)


class Index:
    """The places in a list of patterns, by what their words begin with.

    Most lines of a log differ from others in their digits alone: what is found for one of them is
    kept for all. Patterns that tell no digit from another are tried on that shape once.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._grams: dict[str, list[tuple[str, int]]] = {}
        self._short: list[tuple[str, int]] = []
        self._always: list[int] = []
        self._blind: dict[int, re.Pattern[str]] = {}
        self._numbered: dict[int, frozenset[str]] = {}
        self._known: dict[str, list[int]] = {}
        for place, pattern in enumerate(patterns):
            found = words(pattern)
            if not found:
                self._always.append(place)
            if not _DIGIT.search(_ANY_DIGIT.sub("", pattern)):
                self._blind[place] = re.compile(pattern)
            elif any(map(_DIGIT.search, found)):
                self._numbered[place] = found
            for word in map(shape, found):
                if len(word) < _GRAM:
                    self._short.append((word, place))
                else:
                    self._grams.setdefault(_rarest(word), []).append((word, place))
        self._keys = frozenset(self._grams)

    def places(self, text: str) -> list[int]:
        """Return the patterns that a text may fit, in their order."""
        alike = shape(text)
        known = self._known.get(alike)
        if known is None:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            known = self._known[alike] = self._of(alike)
        return [
            place
            for place in known
            if place not in self._numbered or any(word in text for word in self._numbered[place])
        ]

    def _of(self, alike: str) -> list[int]:
        found = set(self._always)
        for gram in self._keys.intersection(_grams(alike)):
            found.update(place for word, place in self._grams[gram] if word in alike)
        found.update(place for word, place in self._short if word in alike)
        return sorted(
            place for place in found if place not in self._blind or self._blind[place].search(alike)
        )


def _rarest(word: str) -> str:
    """Return the part of a word with the fewest common letters and blanks."""
    return min(_grams(word), key=lambda part: sum(letter in " etaoinsr" for letter in part))


def _grams(text: str) -> Iterator[str]:
    return (text[place : place + _GRAM] for place in range(len(text) - _GRAM + 1))
