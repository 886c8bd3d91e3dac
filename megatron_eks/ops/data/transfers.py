"""`meks ckpt push`, `pull` and `prune`: what moves or goes, by checkpoint_sync wherever it runs."""

from collections.abc import Iterator, Mapping

from megatron_eks.config.load import Json
from megatron_eks.ops import programs
from megatron_eks.ops.console import Console
from megatron_eks.ops.data.listing import NO_DIRECTORY, PROGRAM, S3_END, head, size
from megatron_eks.ops.data.target import Target
from megatron_eks.ops.failure import DONE, FAILED
from megatron_eks.ops.output import count, structured, table
from megatron_eks.ops.programs import Place


def push(target: Target, place: Place, console: Console, *, which: list[str]) -> int:
    """Send whole checkpoints to S3; what is there already is not sent again."""
    words = ["push", str(target.directory), str(target.uri), *which]
    ended = programs.run(place, PROGRAM, words, console)
    for name in (*ended.names("pushed"), *ended.names("present")):
        console.write(f"{name} is in {target.uri}\n")
    return ended.code


def pull(target: Target, place: Place, console: Console, *, name: str | None) -> int:
    """Fetch a checkpoint from S3 and let a run resume from it."""
    words = ["pull", str(target.directory), str(target.uri), *(["--name", name] if name else [])]
    ended = programs.run(place, PROGRAM, words, console)
    if ended.code == DONE:
        console.write(f"{ended.summary.get('pulled')} is in {target.directory}\n")
    return ended.code


def prune(
    target: Target, place: Place, console: Console, *, keep_last: int, output: str, dry_run: bool
) -> int:
    """Show what goes and what stays, ask, and remove what was shown and still may go."""
    words = ["prune", target.directory or NO_DIRECTORY, *([target.uri] if target.uri else [])]
    words += [f"--keep-last={keep_last}", *(["--local"] if target.directory else [])]
    ended = programs.run(place, PROGRAM, [*words, "--dry-run"], console, quiet=True)
    going, staying = ended.rows("goes"), ended.rows("stays")
    if ended.code and not (going or staying):
        return ended.code
    if output == "table":
        console.write("".join(f"{line}\n" for line in _lines(going, staying, place.name)))
    code, removed = ended.code, list[Json]()
    if going and not (dry_run or code):
        if reads := ended.summary.get("reads"):
            console.say(f"reads {size(reads)} first: all bytes of what a restart may need")
        code, removed = _remove(words, going, place, console)
    else:
        console.say("nothing was removed" if going or code else "nothing goes")
    if output != "table":
        shown = {**head(target), "goes": _named(going, place.name)}
        shown |= {"stays": _named(staying, place.name), "removed": removed}
        console.write(structured(shown, output))
    return code


def _remove(
    words: list[str], going: list[dict[str, Json]], place: Place, console: Console
) -> tuple[int, list[Json]]:
    total = sum(each["bytes"] for each in going if isinstance(each["bytes"], int))
    if not console.confirm(f"Remove {count(len(going), 'checkpoint')}, {size(total)}?"):
        console.say("nothing was changed")
        return FAILED, []
    # Chosen anew over there: a training goes on meanwhile, and may need what was shown as old.
    only = [f"--only={name}" for name in dict.fromkeys(str(each["name"]) for each in going)]
    ended = programs.run(place, PROGRAM, [*words, *only], console)
    chosen = {(each["name"], each["where"]) for each in going}
    for each in ended.rows("stays"):
        if (each["name"], each["where"]) in chosen:
            console.say(f"{each['name']} stays: {each['why']}")
    return ended.code, [*ended.names("removed_locally"), *ended.names("removed")]


def _lines(
    going: list[dict[str, Json]], staying: list[dict[str, Json]], near: str
) -> Iterator[str]:
    rows = [
        (str(each["name"]), _where(each, near), size(each["bytes"]), verb, str(each["why"]))
        for verb, choices in (("goes", going), ("stays", staying))
        for each in choices
    ]
    yield from table(("CHECKPOINT", "WHERE", "SIZE", "", "WHY"), rows, right=(2,))


def _named(choices: list[dict[str, Json]], near: str) -> list[Json]:
    fields = ("name", "bytes", "why")
    return [
        {**{field: each[field] for field in fields}, "where": _where(each, near)}
        for each in choices
    ]


def _where(choice: Mapping[str, Json], near: str) -> str:
    return S3_END if choice["where"] == "s3" else near
