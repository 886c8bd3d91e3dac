"""`meks ckpt ls` and `verify`: which checkpoints are whole, and what a restart would take."""

from collections.abc import Iterator, Mapping

from megatron_eks.config.load import Json
from megatron_eks.ops import programs
from megatron_eks.ops.aws.console import Console, duration
from megatron_eks.ops.ckpt.target import Target
from megatron_eks.ops.endings import CHECK_FAILED, DONE, NOT_FOUND
from megatron_eks.ops.output import structured, table
from megatron_eks.ops.programs import Ended, Place

PROGRAM = "checkpoint_sync"
SCHEMA_VERSION = 1
NO_DIRECTORY = "-"
S3_END = "S3"

Row = Mapping[str, Json]


def ls(target: Target, place: Place, output: str, console: Console) -> int:
    """Print all checkpoints of a target, whole and torn."""
    ended = _listed(target, place, console)
    if ended.code:
        return ended.code
    rows = [_row(each, place.name) for each in ended.rows("ends")]
    for found in ended.names("findings"):
        console.say(found)
    if output == "table":
        console.write("".join(f"{line}\n" for line in _lines(rows, ended)))
    else:
        shown: dict[str, Json] = {**head(target), "checkpoints": [dict(row) for row in rows]}
        shown |= {"latest_in_s3": ended.summary.get("latest"), "newest_whole": _newest(rows)}
        console.write(structured({**shown, "restart": ended.summary.get("restart")}, output))
    return DONE


def verify(target: Target, place: Place, name: str | None, output: str, console: Console) -> int:
    """Compare checkpoints with their manifests in S3; without S3 look for what is torn."""
    judge = _marked if target.uri is None else _compared
    code, results = judge(target, place, name, console)
    if code not in {DONE, CHECK_FAILED}:
        return code
    if output == "table":
        rows = [
            (str(each["name"]), "whole" if each["whole"] else f"damaged: {each['why']}")
            for each in results
        ]
        console.write("".join(f"{line}\n" for line in table(("CHECKPOINT", "RESULT"), rows)))
    else:
        shown: dict[str, Json] = {**head(target), "passed": code == DONE}
        checkpoints: list[Json] = [dict(each) for each in results]
        console.write(structured({**shown, "checkpoints": checkpoints}, output))
    return code


def head(target: Target) -> dict[str, Json]:
    """Return what all JSON of these commands begins with."""
    return {
        "schema_version": SCHEMA_VERSION,
        "directory": target.directory,
        "s3_uri": target.uri,
    }


def size(number: Json) -> str:
    """Write bytes as people say them."""
    left = float(number) if isinstance(number, int | float) else 0.0
    for unit in ("B", "kB", "MB", "GB"):
        if left < 1000:  # noqa: PLR2004 -- a unit is a thousand of the one before
            return f"{left:.0f} {unit}" if left >= 10 or unit == "B" else f"{left:.1f} {unit}"  # noqa: PLR2004
        left /= 1000
    return f"{left:.1f} TB"


def _listed(target: Target, place: Place, console: Console) -> Ended:
    words = ["ls", target.directory or NO_DIRECTORY, *([target.uri] if target.uri else [])]
    return programs.run(place, PROGRAM, words, console, quiet=True)


def _row(end: Row, near: str) -> Row:
    where = S3_END if end["where"] == "s3" else near
    return {
        "iteration": end["step"],
        "name": end["name"],
        "where": where,
        "whole": end["torn"] is None,
        "why": end["torn"],
        "bytes": end["bytes"],
        "files": end["files"],
        "age_seconds": end["age_seconds"],
    }


def _newest(rows: list[Row]) -> Json:
    """Return the newest whole checkpoint and where it is."""
    whole = [row for row in rows if row["whole"]]
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
            _age(row["age_seconds"]),
            "whole" if row["whole"] else f"torn: {row['why']}",
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
    if latest := ended.summary.get("latest"):
        yield f"a pull takes: {latest}"
    restart = ended.summary.get("restart")
    if isinstance(restart, dict):
        yield f"a restart takes: {restart['takes'] or 'none of these'} ({restart['why']})"


def _age(seconds: Json) -> str:
    return duration(max(0.0, float(seconds))) if isinstance(seconds, int | float) else "-"


def _compared(
    target: Target, place: Place, name: str | None, console: Console
) -> tuple[int, list[Row]]:
    which = ["--name", name] if name else ["--all"]
    near = ["--local"] if target.directory else []
    words = ["verify", target.directory or NO_DIRECTORY, str(target.uri), *which, *near]
    ended = programs.run(place, PROGRAM, words, console)
    findings = ended.names("findings")
    results: list[Row] = [
        {
            "name": each,
            "whole": each not in ended.names("damaged"),
            "why": next((text for text in findings if text.startswith(f"error {each}: ")), None),
        }
        for each in sorted({*ended.names("verified"), *ended.names("damaged")})
    ]
    return ended.code, results


def _marked(
    target: Target, place: Place, name: str | None, console: Console
) -> tuple[int, list[Row]]:
    """Judge by the files that mark the end of a save: without S3 there are no checksums."""
    ended = _listed(target, place, console)
    found = [each for each in ended.rows("ends") if name in (None, each["name"])]
    if ended.code or not found:
        if not ended.code:
            console.say(f"{target.word}: no checkpoint {name or ''}there - meks ckpt ls")
        return ended.code or NOT_FOUND, []
    console.say("looked for torn saves; bytes are compared where a copy in S3 has checksums")
    results: list[Row] = [
        {"name": each["name"], "whole": each["torn"] is None, "why": each["torn"]} for each in found
    ]
    code = DONE if all(each["torn"] is None for each in found) else CHECK_FAILED
    return code, results
