"""Arguments and options that several commands have: how they are read and completed."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter
from cyclopts.validators import Number, mutually_exclusive

from megatron_eks import DEFAULT_CLUSTER
from megatron_eks.ops import opening

if TYPE_CHECKING:
    from cyclopts import Token
    from cyclopts.completion import CompletionContext

_NAME = r"[\w.-]+"

ONE_OF = Group(validator=mutually_exclusive, show=False)
"""Options of a command that exclude each other."""


def read_by(read: Callable[[str], object], **settings: Any) -> Parameter:  # noqa: ANN401 -- its own
    """Return an option that `read` makes a value of; a ValueError of it is a usage error."""

    def convert(_: object, tokens: "Sequence[Token]") -> object:
        return read(tokens[0].value)

    return Parameter(converter=convert, n_tokens=1, **settings)


def count(text: str, least: int = 0) -> int:
    """Read how many of something are wanted."""
    if not text.isdecimal() or int(text) < least:
        raise ValueError(f"{text!r} is not a number, {least} or more")
    return int(text)


one_or_more = partial(count, least=1)


def span(text: str) -> int:
    """Read a time span, in seconds."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    if text[-1:] not in units or not text[:-1].isdecimal() or int(text[:-1]) < 1:
        raise ValueError(f"{text!r} is not a time such as 90s, 10m, 2h or 1d")
    return int(text[:-1]) * units[text[-1]]


def _cluster_file(context: "CompletionContext") -> Path:
    return Path(context["--cluster"].value)


def _jobs(context: "CompletionContext") -> Iterator[str]:
    """Name the jobs beside the cluster file; a file that is being written hides no other."""
    for file in sorted(_cluster_file(context).parent.glob("jobs/*.yaml")):
        text = file.read_text(errors="replace")
        yield from re.findall(rf"^name: *({_NAME})", text, re.MULTILINE | re.ASCII)


def _pools(context: "CompletionContext") -> Iterator[str]:
    import yaml

    for pool in yaml.safe_load(_cluster_file(context).read_text())["gpu_pools"]:
        if re.fullmatch(_NAME, pool["name"], re.ASCII):
            yield pool["name"]


JOBS, POOLS = Parameter(completer=_jobs), Parameter(completer=_pools)


def _codes(_: "CompletionContext") -> list[str]:
    from megatron_eks.config.explanations import explanations

    return list(explanations())


CODES = Parameter(completer=_codes)

Cluster = Annotated[
    Path,
    read_by(
        lambda text: Path(text or DEFAULT_CLUSTER),
        env_var="CLUSTER_CONFIG",
        metavar="FILE",
        show_default=True,
        help="the cluster file; its jobs are in jobs/ beside it",
    ),
]
Format = Literal["table", "json", "yaml"]
Output = Annotated[
    Format, Parameter(("--output", "-o"), help="table, json or yaml", metavar="FORMAT")
]
Yes = Annotated[bool, Parameter(help="answer yes to every question")]
POSITIVE = Parameter(validator=Number(gt=0, lte=14 * 24 * 60))
N = Annotated[int | None, read_by(count, metavar="N")]
File = Annotated[Path | None, Parameter(metavar="FILE")]
Name = Annotated[str | None, Parameter(metavar="NAME")]
Arn = Annotated[str | None, Parameter(metavar="ARN")]
Preview = Annotated[
    bool, Parameter(help="accept placeholders, on a cluster of `meks local up` only")
]
Timeout = Annotated[
    float,
    POSITIVE,
    Parameter(
        metavar="MINUTES", show_default=lambda number: f"{number:g}", help="how long to wait"
    ),
]
Job = Annotated[str, JOBS, Parameter(help="of jobs/")]
SomeJob = Annotated[str | None, JOBS]


@Parameter(name="*")
@dataclass(frozen=True)
class Reach(opening.Reach):
    """The cluster file, and how to reach the API server of the cluster."""

    cluster: Cluster = Path(DEFAULT_CLUSTER)
    kubeconfig: Annotated[
        Path | None,
        Parameter(
            metavar="FILE", help="how to reach the cluster (default: $KUBECONFIG or ~/.kube/config)"
        ),
    ] = None
    context: Annotated[
        str | None, Parameter(metavar="NAME", help="a context of it (default: its current one)")
    ] = None
    team: Annotated[
        str | None,
        Parameter(metavar="NAME", help="of a cluster with teams (default: the job's, or all)"),
    ] = None


HERE = Reach()
DEFAULT = HERE.cluster
