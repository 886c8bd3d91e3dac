"""Serves the files of a folder with TensorBoard's options, and says so in its words."""

import argparse
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

parser = argparse.ArgumentParser()
for name in ("--logdir", "--host", "--port"):
    parser.add_argument(name, required=True)
options = parser.parse_args()
handler = partial(SimpleHTTPRequestHandler, directory=options.logdir)
with ThreadingHTTPServer((options.host, int(options.port)), handler) as server:
    address = f"http://{options.host}:{options.port}/"
    sys.stderr.write(f"TensorBoard 2.21.0 at {address} (Press CTRL+C to quit)\n")
    server.serve_forever()
