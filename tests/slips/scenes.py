"""What is judged together: a cluster's templates, or its platform and the file of one job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from megatron_eks.catalog.workloads import CONTROLLED
from megatron_eks.guards.check import check_manifests, check_templates
from tests import emitted
from tests.slips import population
from tests.slips.operators import Json
from tests.slips.population import Slip


@dataclass(frozen=True)
class Templates:
    """The templates of a cluster, by stack, one of which has the slip."""

    bodies: Mapping[str, Json]
    stack: str
    region: str

    @property
    def changed(self) -> Json:
        """The template with the slip."""
        return self.bodies[self.stack]


@dataclass(frozen=True)
class Manifests:
    """The objects that are applied together, one of which has the slip."""

    objects: Sequence[Json]
    index: int

    @property
    def changed(self) -> Json:
        """The object with the slip."""
        return self.objects[self.index]


Scene = Templates | Manifests


def before(slip: Slip) -> Scene:
    """Return what is judged, without the slip."""
    if slip.row.startswith("stacks/"):
        bodies = population.templates(slip.cluster)
        return Templates(bodies, slip.file, emitted.emitted(slip.cluster).project.cluster.region)
    files = _applied_with(slip.cluster, slip.file)
    objects = [(file, index, each) for file in files for index, each in _objects(slip, file)]
    places = [(file, index) for file, index, _ in objects]
    return Manifests([each for *_, each in objects], places.index((slip.file, slip.document)))


def after(scene: Scene, slip: Slip) -> Scene:
    """Return the same with the slip."""
    changed = slip.mutant.of(scene.changed)
    if isinstance(scene, Templates):
        return Templates({**scene.bodies, scene.stack: changed}, scene.stack, scene.region)
    index = scene.index
    return Manifests([*scene.objects[:index], changed, *scene.objects[index + 1 :]], index)


def said_by_guards(scene: Scene) -> frozenset[str]:
    """Return what this project's own checks find in what is rendered together."""
    if isinstance(scene, Templates):
        return frozenset(map(str, check_templates(scene.bodies)))
    return frozenset(map(str, check_manifests(scene.objects)))


def _objects(slip: Slip, file: str) -> list[tuple[int, Json]]:
    return list(enumerate(population.objects(slip.cluster, file)))


@cache
def _applied_with(cluster: str, file: str) -> tuple[str, ...]:
    """Return the files of the platform, and the file itself or a training job beside them."""
    files = emitted.emitted(cluster).manifests
    platform = [each for each in files if each.startswith("platform/")]
    if file not in platform:
        return (*platform, file)
    jobs = [each for each in files if each.startswith("jobs/")]
    training = [
        each
        for each in jobs
        if any(item["kind"] in CONTROLLED for item in population.objects(cluster, each))
    ]
    return (*platform, *training[:1])
