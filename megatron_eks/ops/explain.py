"""`meks explain WHAT`, and docs/rules.md; run by `make generate`, tested fresh."""

import sys
from pathlib import Path
from typing import TextIO

from megatron_eks.config.errors import closest
from megatron_eks.config.explanations import explanations, removed
from megatron_eks.ops.failure import DONE, USAGE
from megatron_eks.ops.output import formatted

_PACKAGE = Path(__file__).parents[1]
RULES = _PACKAGE / "docs" / "rules.md"

_PARTS = {
    "00": "Files",
    "01": "The shape of configuration files",
    "02": "Cluster files",
    "03": "Job files",
    "05": "Templates",
    "06": "Manifests",
    "07": "What tools of others say, what is allowed on purpose, and commands",
    "08": "What `meks preflight` and `meks verify` find, and commands about files",
    "09": "What logs show (`meks logs --explain`)",
}
_BEGIN, _END = "<!-- generated: codes -->\n", "<!-- end -->\n"


def run(code: str, output: str, stdout: TextIO) -> int:
    """Print the meaning of a code, or a page that a message names; return the exit code."""
    if code in (pages := [f"docs/{page.name}" for page in RULES.parent.glob("*.md")]):
        stdout.write((_PACKAGE / code).read_text(encoding="utf-8"))
        return DONE
    wanted = f"MEKS-{code.upper().removeprefix('MEKS').removeprefix('-'):0>4}"
    meaning = explanations().get(wanted)
    if meaning is None and wanted in removed():
        stdout.write(f"{wanted} was removed, because {removed()[wanted]}\n")
        return DONE
    if meaning is None:
        meant = closest(code, pages) or closest(wanted, list(explanations()))
        hint = f"did you mean {meant}? " if meant else ""
        sys.stderr.write(
            f"meks explain: error: unknown code {code!r}; {hint}docs/rules.md lists all of them\n"
        )
        return USAGE
    rows: dict[str, str] = {"code": wanted, **vars(meaning)}
    lines = (f"{key:8}{value}" for key, value in rows.items())
    stdout.write(formatted(output, lines, lambda: {**rows}))
    return DONE


def rules(text: str) -> str:
    """Return docs/rules.md with its list of codes made anew."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    lines: list[str] = []
    part = ""
    for code, meaning in sorted(explanations().items()):
        number = code.removeprefix("MEKS-")
        if number[:2] != part:
            part = number[:2]
            lines += ["", f"## {_PARTS.get(part, part)}", ""]
            lines += [
                "| code | level | what | why | remedy | source |",
                "|---|---|---|---|---|---|",
            ]
        cells = (code, meaning.level, meaning.what, meaning.why, meaning.remedy)
        lines.append(f"| {' | '.join((*cells, meaning.source))} |")
    return "".join((before, _BEGIN, "\n".join(lines).lstrip("\n"), "\n", _END, after))


def main() -> None:
    """Write the list of codes."""
    RULES.write_text(rules(RULES.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
