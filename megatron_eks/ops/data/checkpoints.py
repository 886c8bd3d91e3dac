"""`meks ckpt`: which checkpoints are whole, what a restart would take, and what moves or goes.

What each is, `megatron_eks.programs.checkpoint.whole` says: whole as its manifest says, unverified
without one, unfinished or damaged.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from megatron_eks.config.codes import Code
from megatron_eks.config.load import Json
from megatron_eks.ops import programs
from megatron_eks.ops.console import Console, duration
from megatron_eks.ops.data import shared_files
from megatron_eks.ops.data.target import Target
from megatron_eks.ops.failure import DONE, FAILED, NOT_FOUND, Failure
from megatron_eks.ops.output import count, formatted, size, table
from megatron_eks.ops.programs import Ended, Here, Place
from megatron_eks.programs.checkpoint.checkpoints import publish

PROGRAM, OWN_PROGRAM = "checkpoint_sync", "own_saves"
SCHEMA_VERSION = 1
NO_DIRECTORY = "-"
S3_END = "S3"
_WHOLE = ("whole", "complete")
_GOOD = (*_WHOLE, "unverified")

Row = Mapping[str, Json]


def ls(target: Target, place: Place, console: Console, *, output: str) -> int:
    """Print all checkpoints of a target, and the state of each."""
    ended = _listed(target, place, console)
    if ended.code:
        return ended.code
    rows: list[Row] = [
        {
            "iteration": end["step"],
            "name": end["name"],
            "where": _where(end, place.name),
            "whole": end["state"] in _GOOD,
            **{name: end[name] for name in ("state", "why", "bytes", "files", "age_seconds")},
        }
        for end in ended.rows("ends")
    ]
    shown: dict[str, Json] = {
        **head(target),
        "checkpoints": [dict(row) for row in rows],
        "latest_in_s3": ended.summary.get("latest"),
        "newest_whole": _newest(rows),
        "restart": ended.summary.get("restart"),
    }
    console.write(formatted(output, _lines(rows, ended), lambda: shown))
    return DONE


def verify(target: Target, place: Place, console: Console, *, name: str | None, output: str) -> int:
    """Read checkpoints, and compare the copies in S3 by the checksums that it keeps."""
    words = _words("verify", target, *(["--name", name] if name else []))
    ended = _run(target, words, place, console)
    results = _results(ended)
    if not results:
        return ended.code
    lines = table(("CHECKPOINT", "RESULT"), [(str(each["name"]), _said(each)) for each in results])
    checkpoints: list[Json] = [*results]
    shown = {**head(target), "passed": ended.code == DONE, "checkpoints": checkpoints}
    console.write(formatted(output, lines, lambda: shown))
    if any(each["state"] == "unverified" for each in results):
        console.say("note: of those without a manifest nothing tells whether bytes were changed")
    return ended.code


def head(target: Target) -> dict[str, Json]:
    """Return what all JSON of these commands begins with."""
    return {"schema_version": SCHEMA_VERSION, "directory": target.directory, "s3_uri": target.uri}


def _words(verb: str, target: Target, *options: str) -> list[str]:
    ends = [target.directory or NO_DIRECTORY, *([target.uri] if target.uri else [])]
    # All but `ls` look at S3 alone unless they are told.
    local = ["--local"] if target.directory and verb != "ls" else []
    return [verb, *ends, *options, *local]


def _listed(target: Target, place: Place, console: Console) -> Ended:
    return _run(target, _words("ls", target), place, console, quiet=True)


def _run(
    target: Target, words: list[str], place: Place, console: Console, *, quiet: bool = False
) -> Ended:
    """Run what reads checkpoints of this project's form, or those of a program of the user's."""
    marker = [f"--marker={target.marker}"] if target.marker else []
    name = OWN_PROGRAM if marker else PROGRAM
    return programs.run(place, name, [*words, *marker], console, quiet=quiet)


def holds_one(directory: str, place: Place, console: Console) -> bool:
    """Tell whether a directory holds a checkpoint from which a run would go on."""
    ended = _listed(Target(directory, directory), place, console)
    return ended.code != DONE or any(end["state"] in _GOOD for end in ended.rows("ends"))


def _newest(rows: list[Row]) -> Json:
    """Return the newest checkpoint that is as its manifest says, and where it is."""
    whole = [row for row in rows if row["state"] in _WHOLE]
    if not whole:
        return None
    name = whole[-1]["name"]
    return {"name": name, "where": [row["where"] for row in whole if row["name"] == name]}


def _lines(rows: list[Row], ended: Ended) -> Iterator[str]:
    cells = [
        (
            str(row["iteration"]),
            str(row["where"]),
            size(row["bytes"]),
            duration(max(0.0, age)) if isinstance(age := row["age_seconds"], int | float) else "-",
            _said(row),
        )
        for row in rows
    ]
    yield from table(("ITERATION", "WHERE", "SIZE", "AGE", "STATE"), cells, right=(0, 2))
    newest = _newest(rows)
    if isinstance(newest, dict) and isinstance(newest["where"], list):
        places = " and ".join(map(str, newest["where"]))
        yield f"newest whole: {newest['name']}, {places}"
    else:
        yield "newest whole: none"
    if pulled := ended.summary.get("pull"):
        yield f"a pull takes: {pulled}"
    restart = ended.summary.get("restart")
    if isinstance(restart, dict):
        yield f"a restart takes: {restart['takes'] or 'none of these'} ({restart['why']})"


def _said(row: Row) -> str:
    return f"{row['state']}: {row['why']}" if row["why"] else str(row["state"])


def _results(ended: Ended) -> list[dict[str, Json]]:
    """Return what a verification found, oldest first."""
    results: list[dict[str, Json]] = []
    for fact in ("verified", "unverified", "unfinished", "damaged"):
        # As checkpoint_sync says them; what it has verified is whole.
        state = "whole" if fact == "verified" else fact
        for name in ended.names(fact):
            starts = re.compile(
                rf"(?:error|warning) {re.escape(name)}: {state}: (.*) - ", re.DOTALL
            )
            whys = filter(None, map(starts.match, ended.names("findings")))
            why = next((match[1] for match in whys), None)
            good = state in _GOOD
            results.append({"name": name, "whole": good, "state": state, "why": why})
    return sorted(results, key=lambda each: (len(str(each["name"])), str(each["name"])))


def push(target: Target, place: Place, console: Console, *, which: list[str]) -> int:
    """Send whole checkpoints to S3; what is there already is not sent again."""
    words = ["push", str(target.directory), str(target.uri), *which]
    ended = _run(target, words, place, console)
    for name in (*ended.names("pushed"), *ended.names("present")):
        console.write(f"{name} is in {target.uri}\n")
    return ended.code


def pull(
    target: Target, place: Place, console: Console, *, name: str | None, local: str | None = None
) -> int:
    """Fetch a checkpoint and let a run resume from it: from S3, or from /shared to here."""
    if target.uri is None and local is not None:
        return _to_here(target, place, console, name, Path(local).absolute())
    words = ["pull", str(target.directory), str(target.uri), *(["--name", name] if name else [])]
    ended = _run(target, words, place, console)
    if ended.code == DONE:
        console.write(f"{ended.summary.get('pulled')} is in {target.directory}\n")
    return ended.code


def _to_here(target: Target, place: Place, console: Console, name: str | None, root: Path) -> int:
    """Fetch beside its place, compare all bytes with the manifest, then put it there at once."""
    ended = _listed(target, place, console)
    if ended.code:
        return ended.code
    rows = [each for each in ended.rows("ends") if name in {None, each["name"]}]
    good = [str(each["name"]) for each in rows if each["state"] in _GOOD]
    if not good:
        found = f"{target.directory} has no whole checkpoint"
        found = f"{name} is {_said(rows[-1])}" if name and rows else found
        remedy = f"list the checkpoints: meks ckpt ls {target.word}"
        raise Failure(Code.NO_CHECKPOINTS, found, remedy, exit_code=NOT_FOUND)
    chosen = good[-1]
    above, here = root / f".pull-{chosen}", root / chosen
    shared_files.pull(place, f"{target.directory}/{chosen}", root if here.exists() else above)
    if not here.exists():
        words = ["verify", str(above), "--local", "--name", chosen]
        ended = programs.run(Here(os.environ), PROGRAM, words, console, quiet=True)
        if ended.code:
            return ended.code
        (above / chosen).rename(here)
        above.rmdir()
    if not publish(root, chosen):
        console.say(f"{root} holds a newer checkpoint; a run resumes from that one")
    console.write(f"{chosen} is in {root}\n")
    return DONE


def prune(target: Target, place: Place, console: Console, *, keep_last: int, dry_run: bool) -> int:
    """Show what goes and what stays, ask, and remove what was shown and still may go."""
    words = _words("prune", target, f"--keep-last={keep_last}")
    ended = _run(target, [*words, "--dry-run"], place, console, quiet=True)
    going = ended.rows("goes")
    rows = [
        (str(each["name"]), _where(each, place.name), size(each["bytes"]), verb, str(each["why"]))
        for verb in ("goes", "stays")
        for each in ended.rows(verb)
    ]
    if rows:
        lines = table(("CHECKPOINT", "WHERE", "SIZE", "", "WHY"), rows, right=(2,))
        console.write("".join(f"{line}\n" for line in lines))
    if dry_run or ended.code or not going:
        console.say("nothing was removed" if going or ended.code else "nothing goes")
        return ended.code
    if not target.marker:
        console.say("all bytes of what a restart may need are read first")
    total = sum(each["bytes"] for each in going if isinstance(each["bytes"], int))
    if not console.confirm(f"Remove {count(len(going), 'checkpoint')}, {size(total)}?"):
        console.say("nothing was changed")
        return FAILED
    # Chosen anew over there: a training goes on meanwhile, and may need what was shown as old.
    only = [f"--only={name}" for name in dict.fromkeys(str(each["name"]) for each in going)]
    ended = _run(target, [*words, *only], place, console)
    chosen = {(each["name"], each["where"]) for each in going}
    for each in ended.rows("stays"):
        if (each["name"], each["where"]) in chosen:
            console.say(f"{each['name']} stays: {each['why']}")
    return ended.code


def _where(choice: Row, near: str) -> str:
    return S3_END if choice["where"] == "s3" else near
