"""What this project's own checks say of templates and manifests."""

from megatron_eks.guards.check import check_manifests, check_templates
from tests.slips.scenes import Scene, Templates


def said_by_guards(scene: Scene) -> frozenset[str]:
    """Return the findings in what is rendered together."""
    if isinstance(scene, Templates):
        return frozenset(map(str, check_templates(scene.bodies)))
    return frozenset(map(str, check_manifests(scene.objects)))
