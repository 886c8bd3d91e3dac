"""A plugin of pytest that writes down which tests reach the places of the mutants.

`REACHED=FILE pytest -p tests.baseline.reach` adds a line of JSON for each place and test to the
file. Processes that a test starts do the same, unless the test gives them an environment of their
own. Lines that run on import are reached by the file of tests that was first to import them.
"""

import ast
import builtins
import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Generator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

import pytest

from tests.baseline.code_mutants import committed
from tests.baseline.code_operators import Place, slips

_ROOT = Path(__file__).parents[2]
_TEST = "REACHED_BY"

_places: dict[str, list[tuple[int, Place]]] = defaultdict(list)
_seen: set[tuple[int, str]] = set()


def reached(mutant: int) -> None:
    """Note that the running test is at the place of a mutant."""
    test = os.environ.get(_TEST, "")
    if (mutant, test) not in _seen:
        _seen.add((mutant, test))
        _write({"mutant": mutant, "test": test})


def _write(line: dict[str, object]) -> None:
    with Path(os.environ["REACHED"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        file = str(Path(path).relative_to(_ROOT))
        source = self.get_data(path)
        tree = ast.parse(source)
        here = slips(file, source)
        for mutant, place in _places[file]:
            if place in here:
                _mark(tree, mutant, here[place].row)
        return compile(tree, path, "exec")


def _mark(tree: ast.Module, mutant: int, row: int) -> None:
    """Call `reached` before the innermost statement that holds a line.

    What runs on import is as good as reached by whatever runs any function of the module.
    """
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    if not any(node.lineno < row <= (node.end_lineno or 0) for node in functions):
        for node in functions:
            # Behind the docstring, if there is one.
            _call(mutant, node.body, node.body[min(1, len(node.body) - 1)])
    bodies = [
        body
        for node in ast.walk(tree)
        for name in ("body", "orelse", "finalbody")
        if isinstance(body := getattr(node, name, None), list)  # that of a lambda is none
    ]
    *_, (body, statement) = (
        (body, statement)
        for body in bodies
        for statement in body
        if statement.lineno <= row <= statement.end_lineno
    )
    _call(mutant, body, statement)


def _call(mutant: int, body: list[ast.stmt], statement: ast.stmt) -> None:
    call = ast.parse(f"__import__('builtins').reached({mutant})").body[0]
    for node in ast.walk(call):
        ast.copy_location(node, statement)
    body.insert(body.index(statement), call)


class _Finder(MetaPathFinder):
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if not fullname.startswith("megatron_eks"):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        origin = str(Path(spec.origin).resolve()) if spec and spec.origin else ""
        if spec and origin.removeprefix(f"{_ROOT}/") in _places:
            spec.loader = _Loader(fullname, origin)
        return spec


def install() -> None:
    """Watch the places in whatever is imported from now on."""
    for number, mutant in enumerate(committed()):
        _places[mutant.place.file].append((number, mutant.place))
    builtins.reached = reached  # type: ignore[attr-defined]
    sys.meta_path.insert(0, _Finder())


def pytest_load_initial_conftests() -> None:
    """Watch this process before any conftest imports the product, and those that tests start."""
    install()
    folder = Path(tempfile.mkdtemp(prefix="reach-"))
    program = "from tests.baseline.reach import install\ninstall()\n"
    (folder / "sitecustomize.py").write_text(program)
    paths = [str(folder), str(_ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


@pytest.hookimpl
def pytest_collectstart(collector: pytest.Collector) -> None:
    """Say which file is imported."""
    if isinstance(collector, pytest.Module):
        os.environ[_TEST] = collector.nodeid


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Say which test runs."""
    os.environ[_TEST] = item.nodeid
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how long a test took."""
    if report.when == "call":
        _write({"test": report.nodeid, "seconds": round(report.duration, 3)})
