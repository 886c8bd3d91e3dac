"""The application `meks`: its panels, how commands join them, and how help looks."""

from collections.abc import Callable
from inspect import cleandoc
from itertools import count
from textwrap import indent
from typing import TYPE_CHECKING

from cyclopts import App, Group, Parameter
from cyclopts.help.formatters import DefaultFormatter
from cyclopts.help.specs import PanelSpec

from megatron_eks import __version__

if TYPE_CHECKING:
    from cyclopts.help import HelpPanel
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.console import Group as RenderGroup

Command = Callable[..., int]

PLAN, CLUSTER, JOBS, DATA, HERE, _OPTIONS = (
    Group(name, sort_key=place)
    for place, name in enumerate(("Plan", "Cluster", "Jobs", "Data", "Here", "Options"))
)
_COMMANDS = Group("Commands", sort_key=0)
_order = count()


class _Open(PanelSpec):
    """A panel without a box, for files and pipes."""

    def build(self, renderable: "RenderableType", **settings: object) -> "RenderGroup":  # type: ignore[override]
        from rich.console import Group  # only pages of help need rich
        from rich.padding import Padding

        return Group(f"{settings['title']}:", Padding(renderable, (0, 0, 1, 4)))


class _Pages(DefaultFormatter):
    """Panels in boxes on a terminal, and without them in files and pipes."""

    def __call__(self, console: "Console", options: "ConsoleOptions", panel: "HelpPanel") -> None:
        self.panel_spec = None if console.is_terminal else _Open()
        super().__call__(console, options, panel)


app = App(
    "meks",
    help="Plan and check GPU clusters on EKS and the Megatron jobs that run on them.",
    help_epilogue="exit codes: 0 done, 1 failed, 2 configuration or usage wrong, 3 not found,\n"
    "4 a check failed, 5 not reachable, 130 interrupted",
    help_format="plaintext",
    help_formatter=_Pages(),
    version=f"meks {__version__}",
    group_commands=_OPTIONS,
    group_parameters="Options",
    default_parameter=Parameter(negative=(), allow_repeating=True, show_default=False),
)


def command(place: Group | App, usage: str = "", *, name: str = "") -> Callable[[Command], Command]:
    """Add the decorated function to a panel, or to a command that has commands of its own.

    Its docstring is the help, with the examples as its last paragraph. `usage` names arguments
    that may be left out, which the library shows as ARGS.
    """

    def add(function: Command) -> Command:
        word = name or function.__name__.replace("_", "-")
        group(place, word, function.__doc__, usage).default(function)
        return function

    return add


def group(place: Group | App, name: str, text: str | None, usage: str = "") -> App:
    """Add a command that may have commands of its own."""
    parent, panel = (place, _COMMANDS) if isinstance(place, App) else (app, place)
    words = " ".join(("meks", *parent.name[parent is app :], name))
    page, *_ = cleandoc(text or "").partition("\n\n:param")
    *said, examples = page.split("\n\n")
    made = App(
        name,
        help="\n\n".join(" ".join(each.split()) for each in said),
        usage=f"{words} [OPTIONS] {usage}\n" if usage else None,
        help_epilogue="examples:\n" + indent(examples, "  "),
        group=panel,
        group_commands=_OPTIONS,
        sort_key=next(_order),
        version_flags=(),
    )
    parent.command(made)
    # Everybody looks for it among the options.
    made["--help"].show = True
    return made
