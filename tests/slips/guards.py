"""What this project's own checks say of templates and manifests."""

from megatron_eks.rules.manifests import check_manifests
from megatron_eks.rules.templates import check_templates
from tests.slips.scenes import Scene, Templates


def said_by_guards(scene: Scene) -> frozenset[str]:
    """Return the findings in what is rendered together."""
    if isinstance(scene, Templates):
        return frozenset(map(str, check_templates(scene.bodies)))
    return frozenset(map(str, check_manifests(scene.objects)))
