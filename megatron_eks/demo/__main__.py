"""`make demo`: the life cycle of a cluster and its jobs on this machine, told in plain words."""

import argparse
import shlex
import signal
import sys
import time
from types import FrameType

from megatron_eks.demo import picture
from megatron_eks.demo.place import DemoError, Place
from megatron_eks.demo.story import REPORT, Story
from megatron_eks.kubernetes.client import ApiError
from megatron_eks.localcloud.kubernetes.state import shared_files
from megatron_eks.programs.printable import guarded
from megatron_eks.project import IN_CHECKOUT, ROOT

_FAILED, _INTERRUPTED = 1, 130
_FAILURES = ApiError, DemoError, TimeoutError, OSError
_PICTURE = "demo-loss.png"

_PROVED = """
What this showed: the templates deploy and go, by the real cdk; the manifests
are accepted by a real API server; the real operator makes the pods; Megatron
core 0.19 trains over two of them, saves, loses a rank, restarts as a gang and
resumes with the losses that it would have had; checkpoints reach S3 whole.

What it did not show: whether AWS gives the capacity and quotas, what IAM
permits, AMIs and drivers, images and their pulls, GPUs, NCCL, EFA and their
speed, FSx under load. `meks local limits` lists what the local AWS ignores.
"""


@guarded()
def main(argv: list[str]) -> int:
    """Run the demo and return its exit code."""
    parser = argparse.ArgumentParser(prog="make demo ARGS=...", description=__doc__)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--keep", action="store_true", help="leave all of it running at the end")
    group.add_argument("--down", action="store_true", help="end what --keep has left running")
    options = parser.parse_args(argv)
    if not IN_CHECKOUT:
        parser.error("it needs what `make demo` installs in a checkout of this project")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    place = Place()
    try:
        with place.alone():
            return _down(place) if options.down else _run(place, keep=options.keep)
    except KeyboardInterrupt:
        _say("\ninterrupted; nothing of the demo is left running")
        return _INTERRUPTED
    except _FAILURES as error:
        sys.stderr.write(f"\nthe demo failed: {error}\n")
        return _FAILED


def _run(place: Place, *, keep: bool) -> int:
    if place.running:
        raise DemoError("an earlier one still runs - end it: make demo ARGS=--down")
    begin = time.monotonic()
    kept = failed = False

    def detail(line: str) -> None:
        _say(f"       {line}".rstrip())

    story = Story(place, detail)
    steps = (
        ("Start an empty AWS account, and Kubernetes behind its EKS", story.open_account),
        ("Deploy the default cluster: cdk bootstrap, cdk deploy --all", story.deploy),
        ("Take two nodes, build, cdk8s synth, apply the platform", story.install),
        ("Bring the data", story.bring_data),
        ("Train with Megatron (tensor parallel over two pods) and FSDP", story.train),
        ("The loss, before and after", story.show),
        ("Checkpoints in S3", story.check_copies),
        *([] if keep else [("Clean up: meks cleanup", story.clean_up)]),
    )
    _say("A cluster from its first day to its last: no account, nothing is billed.\n")
    try:
        for title, step in steps:
            _say(f"{time.monotonic() - begin:4.0f} s {title}")
            step()
        drawn = ROOT / "dist" / _PICTURE
        drawn.parent.mkdir(exist_ok=True)
        drawn.write_bytes(picture.draw(story.losses, ("before the kill", "after it")))
        kept = keep
    except _FAILURES as error:
        failed = True
        raise DemoError(
            f"{error}\n\nWhat its commands and jobs said stays until the next demo, in\n"
            f"  {place.folder}\nTry again: make demo"
        ) from error
    finally:
        if not kept:
            # Once more Ctrl-C would leave half of it.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            place.stop(keep_files=failed)
    _say(f"{time.monotonic() - begin:4.0f} s Done. The curve as a picture: dist/{_PICTURE}")
    _say(f"       The run as a page for a browser: dist/{REPORT.name}")
    _say(_PROVED)
    if keep:
        _tell_environment(place)
    return 0


def _down(place: Place) -> int:
    if not place.running:
        _say("no demo is running")
        return 0
    shared = shared_files(place.folder)
    place.stop()
    _say(f"ended the demo that was kept, and deleted its /shared: {shared or 'no files'}")
    return 0


def _tell_environment(place: Place) -> None:
    file = place.folder / "shell.sh"
    exports = [f"export {name}={shlex.quote(value)}" for name, value in place.environment.items()]
    lines = (
        "[ -f ~/.bashrc ] && . ~/.bashrc",
        "unset AWS_PROFILE AWS_DEFAULT_PROFILE AWS_SESSION_TOKEN",
        *exports,
        f"export PATH={ROOT / '.venv/bin'}:$PATH",
    )
    file.touch(mode=0o600)  # it has keys in it
    file.write_text("".join(f"{line}\n" for line in lines))
    _say("It still runs. For a shell in it, which `exit` leaves again:\n")
    _say(f"bash --init-file {shlex.quote(str(file))}")
    _say("\nTry: meks status; kubectl get pods -A; aws s3 ls; cdk diff; meks scale p4d 0")
    _say("End it, which deletes its /shared too: make demo ARGS=--down")


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _say(line: str) -> None:
    # At once, also where it is piped: people watch it.
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
