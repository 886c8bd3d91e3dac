"""`meks verify`: the checks of each pool run on its nodes, one after another, and judged."""

from collections.abc import Iterator, Sequence

from megatron_eks.catalog.workloads import WORKLOADS, whole
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import choices
from megatron_eks.config.load import Json
from megatron_eks.config.outputs import is_digest
from megatron_eks.kubernetes.client import Client, Object
from megatron_eks.ops import programs
from megatron_eks.ops.checks import Result, in_kubernetes, report
from megatron_eks.ops.cluster.apply import refuse_unfit
from megatron_eks.ops.console import duration
from megatron_eks.ops.data.shared_pod import SharedPod
from megatron_eks.ops.failure import (
    CHECK_FAILED,
    DONE,
    INTERRUPTED,
    NOT_FOUND,
    USAGE,
    Failure,
    no_such,
)
from megatron_eks.ops.jobs import cancel, fit, verdicts
from megatron_eks.ops.jobs.look import log
from megatron_eks.ops.jobs.pool_checks import CHECKS
from megatron_eks.ops.jobs.status import ranks_of, watched
from megatron_eks.ops.jobs.submit import create
from megatron_eks.ops.kube import jobs, objects
from megatron_eks.ops.opening import Opened
from megatron_eks.ops.output import formatted
from megatron_eks.project import MANIFESTS, synth_command

_TAIL_LINES = 400
_GONE_SECONDS = 120


_Check = tuple[str, Sequence[Object]]
"""Name and objects of a check of one pool, as they were rendered."""


def run(
    output: str,
    on: Opened,
    *,
    pools: Sequence[str] = (),
    checks: Sequence[str] = CHECKS,
    previews: bool = False,
    wait_seconds: float = 1800,
) -> int:
    """Run checks one after another, as they share the GPUs; return 4 if one is below its mark."""
    results: list[Result] = []
    for check in [*_checks(on, pools, checks, previews=previews)]:
        try:
            results.append(_judged(on, check, wait_seconds))
        except KeyboardInterrupt:
            name = check[0]
            on.console.say(
                f"\n{name} goes on, and ends within the hour; to end it: meks cancel {name}; to go "
                "on: meks verify"
            )
            return INTERRUPTED
        on.console.say(f"{results[-1].name}: {results[-1].verdict}")
    return report(on.plan, results, output, on.console)


def _checks(
    on: Opened, pools: Sequence[str], checks: Sequence[str], *, previews: bool
) -> Iterator[_Check]:
    """Yield the wanted checks as `make synth` wrote them; raise Failure where there is none."""
    known = [pool.name for pool in on.plan.pools]
    folder = on.project.file.with_name(MANIFESTS) / "validation"
    any_found = False
    for pool in pools or known:
        if pool not in known:
            text = f"the cluster file has no pool {pool!r}"
            raise no_such(Code.UNKNOWN_POOL, text, pool, known)
        for check in checks:
            file = folder / f"{check}-{pool}.k8s.yaml"
            # EFA is not checked where the type has none.
            if not file.exists() and check == "efa-check":
                continue
            rendered = objects.read([file])
            refuse_unfit(rendered, on.access, on.project, previews=previews)
            for each in rendered:
                objects.find_own(on.client, each, on.plan.name)
            any_found = True
            yield f"{check}-{pool}", rendered
    if not any_found:
        text, remedy = "no check was rendered", f"run: {synth_command(on.project.file)}"
        raise Failure(Code.NOT_SYNTHESISED, text, remedy, exit_code=NOT_FOUND)


def _judged(on: Opened, check: _Check, seconds: float) -> Result:
    """Run a check to its end and judge it, or say what it would wait for in vain."""
    (name, rendered), client, console = check, on.client, on.console
    (workload,) = (each for each in rendered if each["kind"] in WORKLOADS)
    beside = [each for each in rendered if each is not workload]
    for each in fit.obstacles(client, on.plan, whole(workload, beside)):
        if not on.access.is_local and (each.is_final or "meks scale" in each.remedy):
            # Waiting does not bring it.
            path = (f"Job/{name}",)
            finding = in_kubernetes(Code.NO_RESULT, path, each.found, each.remedy)
            return Result(name, (finding,))
        console.say(f"{name} will wait: {each}")
    found = jobs.find(client, workload["metadata"]["namespace"], name)
    if found is not None and found.ended:
        jobs.delete(client, found)
        cancel.wait_until_gone(client, found, _GONE_SECONDS, console)
        found = None
    elif found is not None:
        console.say(f"{name} runs already")
    job = now = found or create(client, beside, workload)
    said: Sequence[str] = ()

    def done(found: jobs.RunningJob | None, lines: Sequence[str]) -> bool:
        nonlocal now, said
        now, said = found or now, lines
        return found is None or bool(found.ended)

    if not watched(client, job, seconds, console, done):
        text = "; ".join([f"not at its end after {duration(seconds)}", *said[1:]])
        return verdicts.verdict(verdicts.Ended(name, "", text, log_of(client, now)))
    ended = verdicts.Ended(name, now.ended, now.message(), log_of(client, now))
    return verdicts.verdict(ended)


def log_of(client: Client, job: jobs.RunningJob, *, last: bool = False) -> str:
    """Return the end of what the first rank has printed, or the last where it is another one."""
    found, query = ranks_of(client, job), {"tailLines": str(_TAIL_LINES), "timestamps": "false"}
    chosen = found[1:][-1:] if last else found[:1]
    return "".join(line for rank in chosen for line in log(client, job.namespace, rank, **query))


def check_image(image: str, output: str, on: Opened) -> int:
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
