"""`meks verify --image`: what an image has that jobs need, seen from one pod in it."""

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import choices
from megatron_eks.config.load import Json
from megatron_eks.config.outputs import is_digest
from megatron_eks.ops import programs
from megatron_eks.ops.data.shared_pod import SharedPod
from megatron_eks.ops.failure import CHECK_FAILED, DONE, USAGE, Failure
from megatron_eks.ops.opening import Opened
from megatron_eks.ops.output import formatted


def run(image: str, output: str, on: Opened) -> int:
    """Look into an image on one pod; return 4 if it lacks something."""
    known = on.project.outputs.images
    if not (image in known or is_digest(image)):
        found = f"{image!r} is neither an image of this cluster nor one with a digest"
        remedy = f"{choices(image, known)}; or REGISTRY/NAME@sha256:..."
        raise Failure(Code.UNKNOWN_IMAGE, found, remedy, exit_code=USAGE)
    efa = any(pool.instance.efa_interfaces for pool in on.plan.pools)
    place = SharedPod(*on, on.plan.platform.claim, image=image)
    ended = programs.run(place, "image_check", ["--efa"] if efa else [], on.console)
    has = {name: ended.summary.get(name) for name in ("python", "torch", "boto3")}
    findings: list[Json] = [*ended.names("findings")]
    shown: dict[str, Json] = {"schema_version": 1, "image": image, "passed": not ended.code}
    shown |= {"versions": {**has}, "findings": findings}
    line = ", ".join(f"{name} {version or 'missing'}" for name, version in has.items())
    verdict = "no job runs in it" if ended.code else "jobs can run in it"
    on.console.write(formatted(output, [f"{image}: {line}; {verdict}"], lambda: shown))
    return CHECK_FAILED if ended.code else DONE
