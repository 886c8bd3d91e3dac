"""Digests of what the project writes and prints, so that a refactoring can show it changed nothing.

`python -m tests.baseline.digests` rewrites the committed file. A commit that changes it says why.
"""

import contextlib
import hashlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from megatron_eks import __main__ as meks
from megatron_eks import node
from megatron_eks.config.schema.__main__ import schemas
from megatron_eks.ops.planning import plan, validate
from megatron_eks.plan.cluster.images import ImagePlan
from megatron_eks.project import ROOT
from tests import emitted
from tests.command import commands

FILE = Path(__file__).with_suffix(".json")

Digests = dict[str, str]


def digests() -> Digests:
    """Return every digest, by what it is taken of."""
    parts = (_templates_and_manifests(), _commands_on_files(), _help_texts(), _schemas())
    return {name: _digest(text) for part in parts for name, text in part}


def difference(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Name what changed, went, or is new."""
    return [
        f"{'new' if name not in before else 'gone' if name not in now else 'changed'}: {name}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]


def committed() -> Digests:
    """Return the digests of the committed file."""
    read: Digests = json.loads(FILE.read_text())
    return read


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _templates_and_manifests() -> Iterator[tuple[str, str]]:
    for cluster in emitted.CLUSTERS:
        made = emitted.emitted(cluster)
        for kind, texts in (("templates", made.templates), ("manifests", made.manifests)):
            for name, text in texts.items():
                yield f"{kind}/{cluster}/{name}", without_tags(text, made.project.cluster.images)


def without_tags(text: str, images: Iterable[ImagePlan]) -> str:
    """Name the tags of images, which change with each of the programs in them."""
    for image in images:
        text = text.replace(image.tag, f"<tag of {image.name}>")
    return text


def _commands_on_files() -> Iterator[tuple[str, str]]:
    for cluster in emitted.WITH_FILES:
        with emitted.files(cluster) as folder, contextlib.chdir(folder):
            printed = _printed(lambda: plan.run(Path("cluster.yaml"), "json", emitted.TODAY))
            images = emitted.emitted(cluster).project.cluster.images
            yield f"plan/{cluster}", without_tags(printed, images)
            printed = _printed(
                lambda: validate.run([], Path("cluster.yaml"), "json", emitted.TODAY)
            )
            yield f"validate/{cluster}", places(json.loads(printed))


def places(findings: list[dict[str, Any]]) -> str:
    """Write findings by what is promised of them; their sentences may get better."""
    return json.dumps(
        sorted([each[key] for key in ("file", "path", "code", "level")] for each in findings)
    )


def _printed(run: Callable[[], int]) -> str:
    progress = contextlib.redirect_stderr(io.StringIO())
    with contextlib.redirect_stdout(io.StringIO()) as out, progress:
        assert run() == 0
    return out.getvalue()


def _help_texts() -> Iterator[tuple[str, str]]:
    with mock.patch.dict(os.environ, {"COLUMNS": "80", "NO_COLOR": "1"}):
        for words in commands():
            yield (
                f"help/{' '.join(('meks', *words))}",
                _printed(partial(meks.main, [*words, "--help"])),
            )


def _schemas() -> Iterator[tuple[str, str]]:
    for name, schema in schemas().items():
        yield f"schema/{name}", json.dumps(schema)
    for file in sorted((ROOT / "docs" / "schemas").iterdir()):
        yield f"schema/{file.stem}", file.read_text()


def main() -> None:
    """Rewrite the committed file, and say what changed."""
    node.use_bundled_node()
    before = committed() if FILE.exists() else {}
    now = digests()
    FILE.write_text(json.dumps(now, indent=0) + "\n")
    sys.stderr.writelines(f"{line}\n" for line in difference(before, now))


if __name__ == "__main__":
    main()
