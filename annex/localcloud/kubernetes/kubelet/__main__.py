"""The process of one node: `python -m megatron_eks.localcloud.kubernetes.kubelet SETTINGS`.

Killed, it takes all of its pods with it, as a node does that loses its power.
"""

import json
import signal
import sys
import threading
from pathlib import Path

from megatron_eks.localcloud.kubernetes.kubelet.context import Context, Settings
from megatron_eks.localcloud.kubernetes.kubelet.node import Node
from megatron_eks.localcloud.kubernetes.kubelet.server import Server


def main(file: Path) -> None:
    """Run a node until SIGTERM."""
    context = Context(Settings(**json.loads(file.read_text())))
    node = Node(context)
    server = Server(context, node)
    for number in (signal.SIGTERM, signal.SIGINT):
        # Its pods end with it: it is the machine that goes, not the kubelet alone.
        signal.signal(number, lambda *_: sys.exit(0))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    node.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
