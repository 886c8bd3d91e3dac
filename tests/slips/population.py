"""Which slips there are: one for all places that are alike, of each stack and each chart.

A place is written as TYPE.KEY.#, `#` for any index. Places are alike if they are written alike; the
first one stands for all, in the deployed default cluster before all others.
"""

import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from tests import emitted
from tests.slips.operators import Json, Mutant, Place, mutants

FILE = Path(__file__).with_suffix(".json")
WITHOUT_MEANING = Path(__file__).with_name("without_meaning.yaml")
MOST_WITHOUT_MEANING = 30

PART = 3
"""One of so many slips is tried, the same ones each time."""
_SEED = 23

CLUSTERS = (
    emitted.AFTER_DEPLOYMENT,
    *(name for name in emitted.CLUSTERS if name != emitted.AFTER_DEPLOYMENT),
)


@dataclass(frozen=True, eq=False)
class Slip:
    """One slip, and where to make it."""

    row: str
    """The stack or chart: `stacks/Storage`, `platform/20-storage`, `jobs/megatron`."""
    pattern: str
    """The place, as all that are alike are written."""
    mutant: Mutant
    cluster: str
    file: str
    """The stack, or the chart with its folder."""
    document: int
    """Which object of the chart's file; 0 in a template."""

    @property
    def operator(self) -> str:
        """What was done there."""
        return self.mutant.operator

    @property
    def kind(self) -> str:
        """The same slip in whatever stack or chart."""
        return f"{self.operator}: {self.pattern}"

    def __str__(self) -> str:
        """Return the line that stands for it in lists."""
        return f"{self.row} {self.kind}"

    def is_in_part(self, part: int) -> bool:
        """Tell whether it is one of those that are tried when one of so many is."""
        return zlib.crc32(f"{_SEED} {self}".encode()) % part == 0


def population() -> list[Slip]:
    """Return every slip that counts."""
    return [slip for slip in every_slip() if not is_below(slip.pattern, without_meaning())]


@cache
def every_slip() -> tuple[Slip, ...]:
    """Return one slip for all that are alike, with those that mean nothing."""
    found: dict[str, Slip] = {}
    known: set[tuple[str, str]] = set()
    for cluster in CLUSTERS:
        for row, file, text in _texts(cluster):
            # Most clusters share most of their charts.
            if (row, text) in known:
                continue
            known.add((row, text))
            for slip in _slips(row, cluster, file):
                found.setdefault(str(slip), slip)
    return tuple(found.values())


def summary(slips: Sequence[Slip]) -> Json:
    """Return what is committed of a population: how many slips each row has, and which."""
    rows = Counter(slip.row for slip in slips)
    lines = "\n".join(sorted(map(str, slips)))
    return {
        "slips": len(slips),
        "rows": dict(sorted(rows.items())),
        "digest": hashlib.sha256(lines.encode()).hexdigest(),
    }


@cache
def without_meaning() -> frozenset[str]:
    """Return the places that mean nothing; what is below one means nothing either."""
    groups = yaml.safe_load(WITHOUT_MEANING.read_text())
    return frozenset(place for group in groups for place in group["places"])


@cache
def templates(cluster: str) -> dict[str, Json]:
    """Return the templates of a cluster by stack."""
    return {name: json.loads(text) for name, text in emitted.emitted(cluster).templates.items()}


@cache
def objects(cluster: str, file: str) -> list[Json]:
    """Return the objects of a chart's file."""
    text = emitted.emitted(cluster).manifests[file]
    return [each for each in yaml.load_all(text, yaml.CSafeLoader) if each]


def place_in_template(template: Json, place: Place) -> str:
    """Write a place in a template: a resource as its type, an export as what it is."""
    if place[0] == "Outputs" and place[1:] and "Export" in template["Outputs"][place[1]]:
        return _written("Export", place[2:])
    if place[0] != "Resources" or not place[1:]:
        return _written(str(place[0]), place[1:])
    kind = str(template["Resources"][place[1]]["Type"]).removeprefix("AWS::")
    inside = place[3:] if place[2:3] == ("Properties",) and place[3:] else place[2:]
    return _written(kind, inside)


def _written(kind: str, place: Place) -> str:
    return ".".join([kind, *("#" if isinstance(part, int) else part for part in place)])


def is_below(pattern: str, places: Iterable[str]) -> bool:
    """Tell whether a place is one of some, or inside of one."""
    return any(pattern == each or pattern.startswith(f"{each}.") for each in places)


def _texts(cluster: str) -> Iterator[tuple[str, str, str]]:
    """Yield row, file and text of everything of a cluster."""
    made = emitted.emitted(cluster)
    for stack, text in made.templates.items():
        yield f"stacks/{stack}", stack, text
    rows = {f"jobs/{job.name}": f"jobs/{job.kind}" for job in made.project.jobs}
    for file in made.manifests:
        if file.startswith("validation/"):
            (pool,) = (
                each.name for each in made.project.cluster.pools if file.endswith(f"-{each.name}")
            )
            rows[file] = file.removesuffix(f"-{pool}")
    for file, text in made.manifests.items():
        yield rows.get(file, file), file, text


def _slips(row: str, cluster: str, file: str) -> Iterator[Slip]:
    if row.startswith("stacks/"):
        template = templates(cluster)[file]
        for mutant in mutants(template):
            pattern = place_in_template(template, mutant.place)
            yield Slip(row, pattern, mutant, cluster, file, 0)
        return
    for index, each in enumerate(objects(cluster, file)):
        for mutant in mutants(each):
            pattern = _written(each["kind"], mutant.place)
            yield Slip(row, pattern, mutant, cluster, file, index)


def main() -> None:
    """Rewrite the committed file."""
    FILE.write_text(json.dumps(summary(population()), indent=2) + "\n")


if __name__ == "__main__":
    main()
