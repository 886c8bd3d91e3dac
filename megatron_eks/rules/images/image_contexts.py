"""Rules over files of a build's context: what .dockerignore leaves out, and lists of packages."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from functools import partial

from megatron_eks.config.errors import Finding
from megatron_eks.rules.image_stages import Instruction, Stage, judged, stages, warned
from megatron_eks.rules.images.image_python import replaced

IGNORED = ".dockerignore"
_OPEN = re.compile(r"[$*?\[\"'<\\]|://|^~|^git@")
_LIST = re.compile(
    r"\b(?:pip3?|python3?\s+-m\s+pip)\s+install\b(?P<words>[^;&|\n]*?\s(?:-r|--requirement)[ =]?"
    r"(?P<file>[\w./-]+\.txt)(?=\s|$|[;&|])[^;&|\n]*)"
)
_ELSEWHERE = re.compile(r"--(target|prefix|root)\b|\$")
_ENVIRONMENT = re.compile(r"venv|conda|activate")
_PARTS = re.compile(r"\*\*/|\*\*|\*|\?|[^*?]+")
_GLOBS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def sources(step: Instruction) -> list[str]:
    """Return what a step copies from the context by a plain name, as Docker reads it."""
    words = [each for each in step.rest.split() if not each.startswith("--")]
    if step.name not in {"ADD", "COPY"} or "--from" in step.rest or "<<" in step.rest:
        return []
    named = [posixpath.normpath(each.lstrip("/")) for each in words[:-1] if not _OPEN.search(each)]
    return [each for each in named if each != "." and not each.startswith("..")]


def findings(listed: list[Instruction], beside: Mapping[str, str]) -> Iterator[tuple[Finding, int]]:
    """Judge what the files beside a Dockerfile say, if its context is their folder.

    It is where every plain name that the file copies is there.
    """
    named = [source for step in listed for source in sources(step)]
    if not named or not all(each in beside for each in named):
        return
    for step in listed:
        for source in sources(step):
            if _left_out(source, beside.get(IGNORED, "")):
                found = f"{IGNORED} leaves {source} out of the build's context: not found"
                yield warned(step, found, f"write !{source} at its end")
    yield from judged(stages(listed), partial(_wishes, beside))


def _left_out(source: str, ignored: str) -> bool:
    """Tell whether a .dockerignore leaves a file out.

    Docker, "Build context", .dockerignore files: patterns begin at the root of the context, what
    is below a match is left out too, and the last match counts.
    """
    out = False
    for line in ignored.splitlines():
        pattern = line.strip()
        if not pattern or line.startswith("#"):
            continue
        back = pattern.startswith("!")
        pattern = posixpath.normpath(pattern.removeprefix("!").strip().lstrip("/") or ".")
        if back and pattern.startswith(f"{source}/"):
            return False
        if "[" in pattern or "\\" in pattern:
            return False
        if pattern == "." or re.fullmatch(f"{_expression(pattern)}(?:/.*)?", source):
            out = not back
    return out


def _expression(pattern: str) -> str:
    return "".join(_GLOBS.get(one[0]) or re.escape(one[0]) for one in _PARTS.finditer(pattern))


def _wishes(beside: Mapping[str, str], stage: Stage, index: int) -> Iterator[tuple[str, str]]:
    """Find a torch of its own in a list of packages that a step before copies."""
    step, before = stage.steps[index], stage.before(index)
    copied = {
        posixpath.basename(source): source
        for each in stage.steps[:index]
        for source in sources(each)
    }
    for match in _LIST.finditer(step.rest) if step.name == "RUN" else ():
        source = copied.get(posixpath.basename(match["file"]))
        whole = f"{before}\n{step.rest[: match.end()]}"
        aside = _ELSEWHERE.search(match["words"]) or _ENVIRONMENT.search(whole)
        # A step that edits the list may take torch out of it.
        edited = re.search(rf"\b(sed|grep|awk)\b[^;&]*{re.escape(match['file'])}", whole)
        for line in beside.get(source or "", "").splitlines() if not aside and not edited else ():
            wish = re.sub(r"\s+#.*", "", line).replace(" ", "")
            if ";" in wish:
                continue
            for found, remedy in replaced(stage, [wish], whole):
                yield f"{source}: {found}", remedy
