"""`meks verify`: the checks of each pool run on its nodes, one after another, and judged."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from megatron_eks.catalog.workloads import WORKLOADS, whole
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.kubernetes.client import Client, Object
from megatron_eks.ops.checks import Result, in_kubernetes, report
from megatron_eks.ops.cluster.apply import refuse_unfit
from megatron_eks.ops.console import Console, duration
from megatron_eks.ops.failure import INTERRUPTED, NOT_FOUND, Failure, no_such
from megatron_eks.ops.jobs import fit, verdicts
from megatron_eks.ops.jobs.look import log
from megatron_eks.ops.jobs.pool_checks import CHECKS
from megatron_eks.ops.jobs.status import ranks_of, watched
from megatron_eks.ops.jobs.submit import create
from megatron_eks.ops.kube import jobs, objects
from megatron_eks.ops.opening import Opened
from megatron_eks.project import MANIFESTS, synth_command

_POLL_SECONDS = 2
_TAIL_LINES = 400
_GONE_SECONDS = 120


@dataclass(frozen=True)
class Options:
    """What the user asked for."""

    pools: Sequence[str] = ()
    """None: all pools that have nodes."""
    checks: Sequence[str] = CHECKS
    previews: bool = False
    wait_seconds: float = 1800


@dataclass(frozen=True)
class _Check:
    """A check of one pool, as it was rendered."""

    name: str
    workload: Object
    beside: tuple[Object, ...]


def run(options: Options, output: str, on: Opened) -> int:
    """Run checks one after another, as they share the GPUs; return 4 if one is below its mark."""
    found = list(_checks(on, options))
    results: list[Result] = []
    for check in found:
        try:
            ended = _ended(on, check, options.wait_seconds)
        except KeyboardInterrupt:
            on.console.say(
                f"\n{check.name} goes on, and ends within the hour; to end it: meks cancel "
                f"{check.name}; to go on: meks verify"
            )
            return INTERRUPTED
        if isinstance(ended, Finding):
            results.append(Result(check.name, (ended,)))
        else:
            results.append(verdicts.verdict(ended))
        on.console.say(f"{check.name}: {results[-1].verdict}")
    return report(on.plan, results, output, on.console)


def _checks(on: Opened, options: Options) -> Iterator[_Check]:
    """Yield the wanted checks as `make synth` wrote them; raise Failure where there is none."""
    pools = options.pools or [pool.name for pool in on.plan.pools]
    known = {pool.name for pool in on.plan.pools}
    folder = on.project.file.with_name(MANIFESTS) / "validation"
    any_found = False
    for pool in pools:
        if pool not in known:
            text = f"the cluster file has no pool {pool!r}"
            raise no_such(Code.UNKNOWN_POOL, text, pool, known)
        for check in options.checks:
            name = f"{check}-{pool}"
            file = folder / f"{name}.k8s.yaml"
            # EFA is not checked where the type has none.
            if not file.exists() and check == "efa-check":
                continue
            rendered = objects.read([file])
            refuse_unfit(rendered, on.access, on.project, previews=options.previews)
            (workload,) = (each for each in rendered if each["kind"] in WORKLOADS)
            beside = tuple(each for each in rendered if each is not workload)
            for each in rendered:
                objects.find_own(on.client, each, on.plan.name)
            any_found = True
            yield _Check(name, workload, beside)
    if not any_found:
        text, remedy = "no check was rendered", f"run: {synth_command(on.project.file)}"
        raise Failure(Code.NOT_SYNTHESISED, text, remedy, exit_code=NOT_FOUND)


def _ended(on: Opened, check: _Check, seconds: float) -> verdicts.Ended | Finding:
    """Run a check to its end, or say in a finding what it would wait for in vain."""
    client, console = on.client, on.console
    for each in fit.obstacles(client, on.plan, whole(check.workload, check.beside)):
        if not on.access.is_local and (each.is_final or "meks scale" in each.remedy):
            # Waiting does not bring it.
            path = (f"Job/{check.name}",)
            return in_kubernetes(Code.NO_RESULT, path, each.found, each.remedy)
        console.say(f"{check.name} will wait: {each}")
    job = now = _started(client, check, console)
    said: Sequence[str] = ()

    def done(found: jobs.RunningJob | None, lines: Sequence[str]) -> bool:
        nonlocal now, said
        now, said = found or now, lines
        return found is None or bool(found.ended)

    if not watched(client, job, seconds, console, done):
        text = "; ".join([f"not at its end after {duration(seconds)}", *said[1:]])
        return verdicts.Ended(check.name, "", text, log_of(client, now))
    return verdicts.Ended(check.name, now.ended, now.message(), log_of(client, now))


def _started(client: Client, check: _Check, console: Console) -> jobs.RunningJob:
    metadata = check.workload["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    found = jobs.find(client, namespace, name)
    if found is not None and not found.ended:
        console.say(f"{name} runs already")
        return found
    if found is not None:
        jobs.delete(client, found)
        gone = console.wait(_GONE_SECONDS, _POLL_SECONDS, lambda: jobs.is_gone(client, found))
        if not gone:
            remedy = f"wait for its pods to end: meks cancel {name}"
            raise Failure(Code.PODS_REMAIN, f"the last {name} is still being deleted", remedy)
    return create(client, check.beside, check.workload)


def log_of(client: Client, job: jobs.RunningJob, *, last: bool = False) -> str:
    """Return the end of what the first rank has printed, or the last where it is another one."""
    found, query = ranks_of(client, job), {"tailLines": str(_TAIL_LINES), "timestamps": "false"}
    chosen = found[1:][-1:] if last else found[:1]
    return "".join(line for rank in chosen for line in log(client, job.namespace, rank, **query))
