"""What a plain word of a YAML file stands for."""

import math
import re
from typing import Self

Scalar = None | bool | int | float | str

# Python refuses to parse integers of more than 4300 digits; no field here takes one.
_PLAIN = re.compile(r"[A-Za-z0-9_./+-][^\s,#:\[\]{}]*")
_LONGEST_INTEGER = 100

# YAML 1.2 core schema (yaml.org/spec/1.2.2, section 10.3.2): `yes` and `1:30` are strings and
# 1e-5 is a number, unlike in YAML 1.1, which PyYAML resolves by default.
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
# What YAML 1.1 resolves beside these (yaml.org/type/bool.html and int.html).
_YES = frozenset({"yes", "Yes", "YES", "on", "On", "ON"})
_NO = frozenset({"no", "No", "NO", "off", "Off", "OFF"})
_OCTAL = re.compile(r"[-+]?0[0-7]+")


class Octal(int):
    """A number that was written in octal, as YAML 1.1 has it, and how: 0770 is 504."""

    written: str

    def __new__(cls, text: str) -> Self:
        """Read a text of octal digits."""
        number = super().__new__(cls, text, 8)
        number.written = text
        return number


def scalar(text: str) -> Scalar:
    """Resolve a plain scalar by YAML 1.2's core schema."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INTEGER.fullmatch(text):
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        return int(text, base) if len(text) < _LONGEST_INTEGER else text
    if _FLOAT.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return text


def as_text(word: str) -> str:
    """Write a word of a list so that YAML reads a text again: in quotes if need be."""
    plain = isinstance(scalar(word), str) and _PLAIN.fullmatch(word) and word != "-"
    return word if plain else f'"{word}"'


def scalar_1_1(text: str) -> Scalar:
    """Resolve a plain scalar as kubectl and CloudFormation do, by YAML 1.1."""
    if text in _YES or text in _NO:
        return text in _YES
    return Octal(text) if _OCTAL.fullmatch(text) and len(text) < _LONGEST_INTEGER else scalar(text)
