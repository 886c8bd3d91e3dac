"""The command line `meks`: reads arguments, calls one command, returns its exit code."""

import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import partial
from importlib import import_module

from cyclopts import App, CoercionError, CycloptsError, UnknownOptionError, UnusedCliTokensError

from megatron_eks import RUN_APP
from megatron_eks.cli.app import app
from megatron_eks.config.errors import ConfigError
from megatron_eks.config.messages import message
from megatron_eks.ops.failure import DONE, FAILED, INTERRUPTED, USAGE, Failure
from megatron_eks.programs.printable import drop, guarded, own

for _panel in ("plan", "cluster", "jobs", "nodes", "reports", "data", "ckpt", "here"):
    import_module(f"megatron_eks.cli.{_panel}")

_NOT_SHOWN = (
    "there are arguments that are not known here, and not shown, for one may be the value: that is "
    "read from standard input, or asked for. One that was typed is in the shell's history now; "
    "make a new one"
)


@guarded()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; an expected failure is printed as findings, never as a traceback."""
    words = sys.argv[1:] if arguments is None else arguments
    if [*words] == [RUN_APP]:
        # The CDK's command line has no other way to the interpreter that has this package.
        os.execv(sys.executable, [sys.executable, "app.py"])  # noqa: S606 -- no shell is wanted
    try:
        try:
            return _run(words)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader went away (`| head`); there is nobody left to tell.
        drop(sys.stdout)
        return DONE
    except OSError as error:
        sys.stderr.write(f"cannot write the result: {error}\n")
        drop(sys.stdout)
        return FAILED


def _run(words: Sequence[str]) -> int:
    given, inner = _split(words)
    if given[:1] == ["help"]:
        given = [*given[1:], "--help"]
    try:
        command, bound, extra = app.parse_args(given, print_error=False, exit_on_error=False)
        if getattr(command, "__func__", None) is App.help_print:
            asked = not words or not {"--help", "-h"}.isdisjoint(given)
            return _help(partial(command, *bound.args, **bound.kwargs), asked=asked)
        if given[:1] == ["__complete"]:
            # A shell asks, and tells names from the rest by control characters.
            with redirect_stdout(own(sys.stdout)):
                return command(*bound.args) or DONE
        if "inner" in extra:
            bound.arguments["inner"] = inner
        code: int | None = command(*bound.args, **bound.kwargs)
    except CycloptsError as error:
        chain, *_ = app.parse_commands(given)
        name = " ".join(("meks", *chain))
        sys.stderr.write(f"{name}: error: {_said(error, chain)}\nsee {name} --help\n")
        raise SystemExit(USAGE) from error
    except ConfigError as error:
        from megatron_eks.ops.output import counted, write_findings  # noqa: PLC0415 -- slow

        output = bound.arguments.get("output", "table")
        # What `meks local up` prints for people is evaluated by their shell.
        evaluated = given[:1] == ["local"] and output == "table"
        write_findings(error.findings, output, sys.stderr if evaluated else sys.stdout)
        sys.stderr.write(f"{counted(error.findings)}\n")
        return USAGE
    except Failure as error:
        sys.stderr.write(message(f"error: {error.problem}", error.remedy, sys.stderr))
        return error.code
    except KeyboardInterrupt:
        # Commands that leave something running say so themselves.
        again = shlex.join(["meks", *words])
        sys.stderr.write(f"\ninterrupted: what was done stays done; to go on: {again}\n")
        return INTERRUPTED
    return code or DONE


def _split(words: Sequence[str]) -> tuple[Sequence[str], tuple[str, ...]]:
    """Keep the command for a container apart: what stands behind `--` is no option of ours."""
    if words[:1] not in (["shell"], ["dev"]) or "--" not in words:
        return words, ()
    at = words.index("--")
    return words[:at], tuple(words[at + 1 :])


def _help(page: Callable[..., None], *, asked: bool) -> int:
    """Print a page of help; where a command of a command is missing, as an error."""
    from rich.console import Console  # noqa: PLC0415 -- slow, and only help needs it

    console = Console()
    with console.capture() as written:
        page(console=console)
    text = re.sub(r" +$", "", written.get(), flags=re.MULTILINE)
    (sys.stdout if asked else sys.stderr).write(re.sub(r"\n{3,}", "\n\n", text))
    return DONE if asked else USAGE


def _said(error: CycloptsError, chain: Sequence[str]) -> str:
    """Say what is wrong with the command line."""
    error.verbose = False
    if isinstance(error, UnusedCliTokensError | UnknownOptionError) and "secret" in chain:
        return _NOT_SHOWN
    if isinstance(error, UnusedCliTokensError):
        return f"unrecognized arguments: {shlex.join(error.unused_tokens or ())}"
    if isinstance(error, CoercionError) and error.argument and error.token:
        name = error.token.keyword or error.argument.name
        if error.msg:
            return f"argument {name}: {error.msg}"
        if choices := error.argument.get_choices(force=True):
            known = ", ".join(map(repr, choices))
            return f"argument {name}: invalid choice: {error.token.value!r} (choose from {known})"
    return str(error)


if __name__ == "__main__":
    sys.exit(main())
