"""Slips of the hand in Python: every place where one could be, and the file with it made."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_TURNED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", ">="),
    ast.LtE: ("<=", ">"),
    ast.Gt: (">", "<="),
    ast.GtE: (">=", "<"),
    ast.In: ("in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
}
_SHIFTED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
}


@dataclass(frozen=True, order=True)
class Place:
    """Where a slip is, so that it is found again when other lines of the file have changed."""

    file: str
    line: str
    """The text of the line."""
    ordinal: int
    """How many lines above it have the same text."""
    operator: str
    turn: int
    """How many slips of the same operator are to the left of it in the line."""


@dataclass(frozen=True)
class Slip:
    """A change of one place of a file."""

    operator: str
    row: int
    start: int
    """The bytes from here to the end are replaced."""
    end: int
    text: str

    def made_in(self, source: bytes) -> bytes:
        """Return the file with the slip in it."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def slips(file: str, source: bytes) -> dict[Place, Slip]:
    """Return every slip of a file, by its place, from the top down."""
    lines = [line.strip() for line in source.decode().split("\n")]
    ordinals: list[int] = []
    seen: Counter[str] = Counter()
    for line in lines:
        ordinals.append(seen[line])
        seen[line] += 1
    places: dict[Place, Slip] = {}
    turns: Counter[tuple[int, str]] = Counter()
    for slip in sorted(_Finder(source).slips(), key=lambda slip: (slip.start, slip.operator)):
        turn = turns[slip.row, slip.operator]
        turns[slip.row, slip.operator] += 1
        row = slip.row - 1
        places[Place(file, lines[row], ordinals[row], slip.operator, turn)] = slip
    return places


class _Finder:
    def __init__(self, source: bytes) -> None:
        self._source = source
        self._starts = [0]
        for line in source.split(b"\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)

    def slips(self) -> Iterator[Slip]:
        yield from self._below(ast.parse(self._source), inside=False)

    def _below(self, node: ast.AST, *, inside: bool) -> Iterator[Slip]:
        """Find slips in a node; statements are dropped inside functions alone."""
        # Places in the text of an f-string are not known to this version of Python.
        if isinstance(node, ast.JoinedStr):
            return
        yield from self._of_expression(node)
        yield from self._of_condition(node)
        if inside:
            yield from self._of_statement(node)
        inside = inside or isinstance(node, ast.FunctionDef)
        # Whether a class is frozen, as its decorator says, changes no result.
        decorators = getattr(node, "decorator_list", ())
        for child in ast.iter_child_nodes(node):
            if child not in decorators:
                yield from self._below(child, inside=inside)

    def _of_expression(self, node: ast.AST) -> Iterator[Slip]:
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                for operator, table in (("turn", _TURNED), ("shift", _SHIFTED)):
                    if type(op) in table:
                        yield from self._between(operator, left, right, *table[type(op)])
            case ast.BoolOp(op=op, values=[left, right, *_]):
                words = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                yield from self._between("and or", left, right, *words)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                start = self._at(node.lineno, node.col_offset)
                end = self._at(operand.lineno, operand.col_offset)
                # A bracket between the two has its other half behind them.
                if self._source[start:end].split() == [b"not"]:
                    yield Slip("drop not", node.lineno, start, end, "")
            case ast.Constant(value=bool(value)):
                yield self._instead("true false", node, str(not value))
            case ast.Constant(value=int() | float() as value):
                yield self._instead("one more", node, str(value + 1))

    def _of_statement(self, node: ast.AST) -> Iterator[Slip]:
        match node:
            case ast.Return(value=ast.expr() as value) if not _is_none(value):
                yield self._instead("return nothing", node, "return None")
            case ast.Assign() | ast.AugAssign() | ast.Expr(value=ast.Call() | ast.Yield()):
                yield self._instead("drop statement", node, "pass")
            case ast.Expr(value=ast.YieldFrom()):
                # The function still is one that yields.
                yield self._instead("drop statement", node, "yield from ()")

    def _of_condition(self, node: ast.AST) -> Iterator[Slip]:
        match node:
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
                tests = [test]
            case ast.comprehension(ifs=tests):
                pass
            case _:
                return
        for test in tests:
            if not isinstance(test, ast.Constant):
                yield self._instead("always", test, "True")
                yield self._instead("never", test, "False")

    def _instead(self, operator: str, node: ast.expr | ast.stmt, text: str) -> Slip:
        start = self._at(node.lineno, node.col_offset)
        end = self._at(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
        return Slip(operator, node.lineno, start, end, text)

    def _between(
        self, operator: str, left: ast.expr, right: ast.expr, words: str, text: str
    ) -> Iterator[Slip]:
        start = self._at(left.end_lineno or left.lineno, left.end_col_offset or left.col_offset)
        end = self._at(right.lineno, right.col_offset)
        # A comment between the two may hold the same words.
        if b"#" not in self._source[start:end] and (
            found := re.search(words.encode(), self._source[start:end])
        ):
            row = self._source.count(b"\n", 0, start + found.start()) + 1
            yield Slip(operator, row, start + found.start(), start + found.end(), text)

    def _at(self, row: int, column: int) -> int:
        return self._starts[row - 1] + column


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None
