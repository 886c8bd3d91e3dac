"""Serves the local AWS: `python -m megatron_eks.localcloud.aws PORT KEYS [KUBECONFIG]`.

KEYS is the file of the keys that it takes: arguments are for everybody to read.
"""

import logging
import sys
from pathlib import Path

from moto.moto_server.werkzeug_app import MotoRequestHandler
from werkzeug.serving import make_server

from megatron_eks.localcloud.aws import keys
from megatron_eks.localcloud.aws.application import application


def main(port: int, file: Path, kubeconfig: Path | None = None) -> None:
    """Listen on loopback until the process is ended.

    The kubeconfig is that of the API server behind EKS clusters, and may be written later.
    """
    logging.basicConfig(level=logging.INFO)
    # A line for each request would fill the log of a long session.
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = make_server(
        "127.0.0.1",
        port,
        application(keys.read(file), kubeconfig),
        threaded=True,
        request_handler=MotoRequestHandler,
    )
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), *map(Path, sys.argv[2:]))
