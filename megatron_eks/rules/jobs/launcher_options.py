"""Rules over torchrun's own options: that it has them, and that they have their values."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.rules.jobs.shell_values import told
from megatron_eks.rules.jobs.training_flags import split_words
from megatron_eks.rules.values import shown
from megatron_eks.rules.workloads import Container, Manifest

_LAUNCHER = re.compile(r"(\S*/)?torchrun|torch\.distributed\.(run|launch)")
# torch/distributed/run.py, get_args_parser; each is there with underscores, too.
_OPTIONS = tuple(
    f"--{name}"
    for name in (
        *("nnodes", "nproc-per-node", "node-rank", "master-addr", "master-port", "local-addr"),
        *("rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "standalone", "max-restarts"),
        *("monitor-interval", "start-method", "event-log-handler", "role", "module", "no-python"),
        *("run-path", "log-dir", "redirects", "tee", "local-ranks-filter", "logs-specs", "use-env"),
        *("duplicate-stdout-filters", "duplicate-stderr-filters", "numa-binding", "help"),
        *("signals-to-handle", "virtual-local-rank", "shutdown-timeout"),
    )
)
_ENDS = re.compile(r"\S+\.py|-m|--module|-{1,2}|&&|\|\|?|;|&|\$\S*|[\"']?\$\S*")
_CLOSE = 0.85


def options(manifest: Manifest) -> Iterator[Finding]:
    """Refuse options that torchrun nearly has, and an `=` that stands alone.

    torch/distributed/run.py, get_args_parser: argparse ends the launcher at what it does not know,
    and takes a lone = for the value.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            if container.is_init or not container.has_launcher:
                continue
            before = ""
            for path, word in _own(container):
                name = word.partition("=")[0].replace("_", "-")
                known = any(each.startswith(name) for each in _OPTIONS)
                if word == "=" and before.startswith("--"):
                    found = f"a space before the = of {before}: torchrun takes = for its value"
                    yield Finding(Code.RENDEZVOUS_FLAG, path, found, f"write {before}=VALUE")
                elif word.startswith("--") and not known:
                    close = get_close_matches(name, _OPTIONS, 1, _CLOSE)
                    if close:
                        found = f"torchrun has no option {shown(word.partition('=')[0])}"
                        remedy = f"did you mean {close[0]}?"
                        yield Finding(Code.RENDEZVOUS_FLAG, path, found, remedy)
                before = word


def _own(container: Container) -> Iterator[tuple[Path, str]]:
    """Return the words between the launcher and its program."""
    launched = False
    for path, line in told(container):
        for word in split_words(line):
            if launched and (_ENDS.fullmatch(word) or word == "\n"):
                launched = False
            if launched:
                yield path, word
            launched = launched or _LAUNCHER.fullmatch(word) is not None
