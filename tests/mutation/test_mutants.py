"""Slips of the hand in correct files: each is found, or there is a reason why not."""

import zlib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from megatron_eks.config.load import read_documents
from megatron_eks.rules.manifests import check_manifests
from megatron_eks.rules.templates import check_templates
from tests.charts import rendered
from tests.mutation.mutants import Json, Place, mutants
from tests.stacks.synthesis import cluster_file, synthesise, write_sources
from tests.variations import VARIATIONS

TABLE = Path(__file__).with_name("survivors.yaml")
CLUSTERS = ("", "lustre_over_efa", "without_a_way_out", "github")
JOBS = ("megatron-cpt-techpulse", "data-prep-techpulse")
# The custom resource's definition is upstream's, and the control plane's tests install it.
SKIPPED = ("CustomResourceDefinition", "ValidatingWebhookConfiguration")
PART = 3
"""One of so many mutants is tried, the same ones each time; `--mutants=all` tries all."""

Seen = set[tuple[str, str]]


@pytest.fixture
def part(request) -> int:
    """Return one of how many mutants is tried."""
    return 1 if request.config.getoption("--mutants") == "all" else PART


def chosen(operator: str, pattern: str, seen: Seen, part: int) -> bool:
    """Tell whether a mutant is tried: the first in places that are alike, and of those a part."""
    key = (operator, pattern)
    if key in seen or zlib.crc32(repr(key).encode()) % part:
        return False
    seen.add(key)
    return True


def written(kind: str, place: Place) -> str:
    """Write a place as the table has it."""
    return ".".join([kind, *("#" if isinstance(part, int) else part for part in place)])


def of_template(template: Json, place: Place) -> str:
    """Write a place in a template, a resource as its type."""
    if len(place) == 1 or place[0] != "Resources":
        return written(str(place[0]), place[1:])
    kind = str(template["Resources"][place[1]]["Type"]).removeprefix("AWS::")
    inside = place[3:] if place[2:3] == ("Properties",) and place[3:] else place[2:]
    return written(kind, inside)


def survivors_of_templates(templates: Mapping[str, Json], seen: Seen, part: int) -> Iterator[str]:
    """Change templates that are deployed together, and return what nobody notices."""
    assert list(check_templates(templates)) == []
    for name, template in templates.items():
        for mutant in mutants(template):
            pattern = of_template(template, mutant.place)
            if chosen(mutant.operator, pattern, seen, part):
                changed = {**templates, name: mutant.of(template)}
                if next(check_templates(changed), None) is None:
                    yield f"{mutant.operator}: {pattern}"


def survivors_of_manifests(objects: list[Json], part: int) -> Iterator[str]:
    """Change objects that are applied together, and return what nobody notices."""
    assert list(check_manifests(objects)) == []
    seen: Seen = set()
    for index, each in enumerate(objects):
        for mutant in mutants(each):
            pattern = written(each["kind"], mutant.place)
            if not chosen(mutant.operator, pattern, seen, part):
                continue
            changed = mutant.of(each)
            beside = [*objects[:index], changed, *objects[index + 1 :]]
            if next(check_manifests(beside), None) is None:
                yield f"{mutant.operator}: {pattern}"


def assert_explained(kind: str, found: list[str], part: int) -> None:
    """Fail with what the table has no reason for, and with reasons that no mutant at all needs."""
    (document,) = read_documents(TABLE.read_text(), TABLE.name)
    table: Json = document.value
    unused = {entry["reason"] for entry in table[kind]}
    open_ = []
    for line in found:
        operator, _, place = line.partition(": ")
        reasons = [
            entry["reason"]
            for entry in table[kind]
            if operator in entry["operators"]
            and any(fnmatchcase(place, each) for each in entry["places"])
        ]
        unused -= set(reasons[:1])
        open_ += [] if reasons else [line]
    # A part of the mutants may miss the few that a reason is there for.
    assert (open_, unused if part == 1 else set()) == ([], set())


def test_slips_in_templates(tmp_path, part):
    """Of the default cluster and of three very different ones."""
    sources = write_sources(tmp_path / "assets")
    seen: Seen = set()
    found: list[str] = []
    for name in CLUSTERS:
        cluster = cluster_file()
        VARIATIONS.get(name, lambda _: None)(cluster)
        made = synthesise(cluster, sources, tmp_path / f"made-{name}").templates()
        bodies = {stack: template.body for stack, template in made.items()}
        found += survivors_of_templates(bodies, seen, part)
    assert_explained("templates", found, part)


def test_slips_in_manifests(part):
    """Of the platform, a training job and a task."""
    jobs = rendered.jobs(*(rendered.training_job(name=name) for name in JOBS))
    objects = [each for each in rendered.platform() if each["kind"] not in SKIPPED]
    assert_explained("manifests", list(survivors_of_manifests([*objects, *jobs], part)), part)
