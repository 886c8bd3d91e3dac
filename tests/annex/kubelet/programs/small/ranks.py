"""Ranks that meet as torchrun's do, from the same variables, and start in 50 ms instead of 5 s.

In each step rank 0 adds up what all ranks send, tells them the sum and records it in
LOG_DIR/steps.jsonl, from which the next start continues. Who loses a peer ends with exit code 1.
The run ends once LOG_DIR/finish exists.
"""

import argparse
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

_STEP_SECONDS = 0.05
_CONNECT_SECONDS = 60
_DONE = "done"


def main() -> None:
    """Step until told to finish."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-m", dest="program")
    parser.add_argument("--log-dir", type=Path, required=True)
    log_dir: Path = parser.parse_known_args()[0].log_dir
    # Process 1 of a container gets no signal that it does not ask for.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rank, world = int(os.environ["PET_NODE_RANK"]), int(os.environ["PET_NNODES"])
    address = (os.environ["PET_MASTER_ADDR"], int(os.environ["PET_MASTER_PORT"]))
    log_dir.mkdir(parents=True, exist_ok=True)
    sys.stdout.write(f"rank {rank} of {world} starts\n")
    sys.stdout.flush()
    if rank == 0:
        _lead(address[1], world, log_dir)
    else:
        _follow(address, rank)
    sys.stdout.write(f"rank {rank} has finished\n")
    sys.stdout.flush()


def _lead(port: int, world: int, log_dir: Path) -> None:
    record = log_dir / "steps.jsonl"
    start = len(record.read_text().splitlines()) if record.exists() else 0
    with socket.create_server(("", port)) as listener:
        peers = [listener.accept()[0].makefile("rw") for _ in range(world - 1)]
    step = start
    while True:
        total = 1 + sum(int(peer.readline() or sys.exit("a peer is gone")) for peer in peers)
        step += 1
        with record.open("a") as file:
            file.write(json.dumps({"step": step, "start": start, "sum": total, "world": world}))
            file.write("\n")
        done = (log_dir / "finish").exists()
        for peer in peers:
            peer.write(f"{_DONE if done else total}\n")
            peer.flush()
        if done:
            return
        time.sleep(_STEP_SECONDS)


def _follow(address: tuple[str, int], rank: int) -> None:
    with _connect(address) as connection, connection.makefile("rw") as leader:
        while True:
            leader.write(f"{rank + 1}\n")
            leader.flush()
            answer = leader.readline() or sys.exit("rank 0 is gone")
            if answer.strip() == _DONE:
                return


def _connect(address: tuple[str, int]) -> socket.socket:
    deadline = time.monotonic() + _CONNECT_SECONDS
    while True:
        try:
            return socket.create_connection(address, timeout=_CONNECT_SECONDS)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_STEP_SECONDS)


if __name__ == "__main__":
    main()
