"""`meks apply`: manifests brought into the cluster in order, and what has gone taken out."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path

from megatron_eks.catalog import kueue
from megatron_eks.catalog.workloads import WORKLOADS
from megatron_eks.config.codes import Code
from megatron_eks.kubernetes.client import ApiError, Client, Object
from megatron_eks.ops.cluster import readiness, watchers
from megatron_eks.ops.cluster.inside.live import SET_UP
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import DONE, FAILED, USAGE, Failure
from megatron_eks.ops.kube import objects
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.kube.objects import Key, key
from megatron_eks.ops.opening import Opened
from megatron_eks.ops.output import count
from megatron_eks.project import Project, synth_command

_DRY_RUNS = 8
# Where the last of a stage must work before the next begins: CRDs, and workloads with a webhook.
_AWAITED = (1, 3)

_VERBS = {"create": "created", "change": "changed", "adopt": "adopted", "remove": "removed"}
_CONTROLLERS = {
    Key("apps", "Deployment", *each.controller)
    for each in (*WORKLOADS.values(), kueue.WORKLOAD)
    if each.controller
}


@dataclass(frozen=True)
class Change:
    """What applying does to one object."""

    verb: str
    """create, change, adopt, remove, keep (it would go, but is needed), or nothing."""
    key: Key
    manifest: Object = field(repr=False)
    lines: tuple[str, ...] = ()
    """What differs, or why it is kept."""
    nameless: bool = False
    """Whether it is there, and carries no cluster's name yet."""


def run(
    paths: Sequence[Path],
    on: Opened,
    *,
    platform: Path,
    only_diff: bool = False,
    previews: bool = False,
    wait_seconds: float = 600,
) -> int:
    """Show what changes, ask, apply, wait; a second run finds nothing to do.

    Without files and folders it brings the platform, which is also pruned.
    """
    (access, project, console), plan, client = on, on.plan, on.client
    is_platform = not paths
    wanted = read(paths or [platform], access, project, previews=previews, rendered=is_platform)
    new_namespaces = {
        each["metadata"]["name"]
        for each in wanted
        if each["kind"] == "Namespace"
        and client.find("v1", "Namespace", each["metadata"]["name"]) is None
    }
    with ThreadPoolExecutor(_DRY_RUNS) as pool:
        asked = pool.map(lambda each: _change(client, each, new_namespaces, plan.name), wanted)
        changes = list(asked)
    if is_platform:
        changes += _leftovers(client, plan.name, wanted)
    show(changes, console)
    acting = [each for each in changes if each.verb in _VERBS]
    # What a local cluster rehearses concerns nobody else's Grafana.
    is_watched = is_platform and plan.observability is not None and not access.is_local
    watch = partial(watchers.bring, plan, client, platform.parent, console)
    if only_diff:
        return watch(only_diff=True) if is_watched else DONE
    if acting:
        _note(acting, project, console)
        if not console.confirm(f"Apply to {client.server}?"):
            console.say("nothing was changed")
            return FAILED
        if is_platform and access.is_local:
            from megatron_eks.ops.local import bring_controllers  # noqa: PLC0415 -- seldom needed

            bring_controllers(client.server, platform)
        _carry_out(client, acting, console, wait_seconds)
    if is_platform:
        readiness.wait(client, wanted, console, wait_seconds)
        console.say("the platform is ready")
    return watch(only_diff=False) if is_watched else DONE


def read(
    paths: Sequence[Path],
    access: Access,
    project: Project,
    *,
    previews: bool,
    rendered: bool = True,
) -> list[Object]:
    """Read what fits this cluster, and mark what was `rendered` for it; raise Failure otherwise."""
    found = objects.read(paths, synth_command(project.file))
    refuse_unfit(found, access, project, previews=previews, rendered=rendered)
    if access.is_local:
        # There they are processes of this machine.
        found = [each for each in found if key(each) not in _CONTROLLERS]
    for each in found if rendered else ():
        objects.mark(each, project.cluster.name)
    return found


def _note(acting: Sequence[Change], project: Project, console: Console) -> None:
    """Say what the answer to the question decides besides the changes shown."""
    plan = project.cluster
    labels = [
        each.manifest["metadata"].get("labels") or {} for each in acting if each.verb != "remove"
    ]
    if plan.storage.existing and any(each.get("app") == SET_UP for each in labels):
        directories = plan.platform.shared_directories
        console.say(f"on {project.outputs.lustre.id}, which exists, the Job {directories}")
    nameless = [str(each.key) for each in acting if each.nameless]
    if nameless:
        console.say(
            f"{len(nameless)} of these objects carry no cluster's name: an older release or "
            f"somebody else made them; they become {plan.name}'s: {_some(nameless)}"
        )


def refuse_unfit(
    wanted: Sequence[Object],
    access: Access,
    project: Project,
    *,
    previews: bool,
    rendered: bool = True,
) -> None:
    """Refuse objects of another cluster, or for one, and placeholders outside of a rehearsal.

    What nobody has `rendered` may carry no cluster's name.
    """
    name, again = project.cluster.name, synth_command(project.file)
    owners = {objects.owner(each) for each in wanted}
    if others := sorted(each for each in owners if each not in {None, name}):
        found = f"the manifests are of cluster {others[0]!r}, and the cluster file says {name!r}"
        remedy = f"write its own: {again}; or name the other file with --cluster"
        raise Failure(Code.OWNED_BY_ANOTHER, found, remedy, exit_code=USAGE)
    if rendered and owners == {None}:
        found = "the manifests carry no cluster's name: an older release wrote them"
        raise Failure(Code.NOT_SYNTHESISED, found, f"write them again: {again}", exit_code=USAGE)
    for namespace in dict.fromkeys(key(each).namespace for each in wanted):
        objects.check_namespace(access.client, namespace, name)
    previewed = objects.previews(wanted)
    if not previewed or (previews and access.is_local):
        return
    # The finding that synthesis printed says what is missing, and which command provides it.
    remedies = [finding.remedy for finding in project.preview]
    remedy = f"{remedies[0]}; then: {again}" if remedies else f"write it again: {again}"
    if access.is_local:
        remedy += "; or add --preview, for a rehearsal on this local cluster"
    names = _some([str(key(each)) for each in previewed])
    message = f"placeholders for what AWS has not chosen yet, in {names}"
    raise Failure(Code.PREVIEW_REFUSED, message, remedy, exit_code=USAGE)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if names[3:] else "")


def _change(client: Client, manifest: Object, new_namespaces: set[str], cluster: str) -> Change:
    """Ask the server what it would make of an object."""
    found = key(manifest)
    if found.namespace in new_namespaces:
        return Change("create", found, manifest)
    try:
        live = objects.find_own(client, manifest, cluster)
        after = client.apply(manifest, dry_run=True)
    except ApiError as error:
        # A kind whose CRD comes with the same files.
        if error.status == HTTPStatus.NOT_FOUND and objects.stage(manifest) > _AWAITED[-1]:
            return Change("create", found, manifest)
        # Of Jobs "field is immutable", of claims and volumes "is immutable after creation".
        if "is immutable" in str(error):
            place = f"-n {found.namespace} " if found.namespace else ""
            remedy = f"remove it, then again: kubectl {place}delete {found.kind} {found.name}"
            if found.kind == "PersistentVolumeClaim":
                remedy += "; files stay, and it goes when no pod uses it"
            message = f"{found} exists with fields that cannot change"
            raise Failure(Code.KUBERNETES_REFUSED, message, remedy) from error
        raise ApiError(error.status, error.reason, f"{found}: {error}") from error
    if live is None:
        return Change("create", found, manifest)
    lines, nameless = objects.differences(live, after), objects.owner(live) is None
    if lines and not objects.differences(objects.named_as(live, after), after):
        # Somebody else applied it, kubectl perhaps: from now on it is pruned with the rest.
        return Change("adopt", found, manifest, nameless=nameless)
    return Change("change" if lines else "", found, manifest, tuple(lines), nameless)


def _leftovers(client: Client, name: str, wanted: Sequence[Object]) -> list[Change]:
    emitted = {key(each) for each in wanted}
    return [
        Change("keep", key(each), each, (reason,)) if reason else Change("remove", key(each), each)
        for each in objects.owned(client, name)
        # What is going already, a namespace for minutes perhaps, is nobody's to remove or keep.
        if key(each) not in emitted and "deletionTimestamp" not in each["metadata"]
        for reason in [objects.reason_to_keep(client, each)]
    ]


def show(changes: Sequence[Change], console: Console) -> None:
    """Write each change, and for an object that stays what differs in it."""
    for each in changes:
        if each.verb == "keep":
            (reason,) = each.lines
            console.say(f"note: {each.key} is no longer emitted and stays, because {reason}")
        elif each.verb:
            console.write(f"{each.verb} {each.key}\n")
            console.write("".join(f"    {line}\n" for line in each.lines))
    verbs = [each.verb for each in changes]
    counts = [f"{verbs.count(verb)} to {verb}" for verb in _VERBS]
    counts = [each for each in counts if not each.startswith("0 ")]
    same = verbs.count("")
    whole = f"{count(same, 'object')} as {'it' if same == 1 else 'they'} should be"
    console.say(f"{', '.join(counts) or 'no changes'}, {whole}")


def _carry_out(client: Client, changes: Sequence[Change], console: Console, seconds: float) -> None:
    applied = [each for each in changes if each.verb != "remove"]
    last = max((objects.stage(each.manifest) for each in applied), default=0)
    for number in range(last + 1):
        current = [each for each in applied if objects.stage(each.manifest) == number]
        for each in current:
            client.apply(each.manifest)
            console.say(f"{_VERBS[each.verb]} {each.key}")
        if number in _AWAITED and number < last:
            # Nothing that follows asks for the end of a Job.
            awaited = [each.manifest for each in current if each.key.kind != "Job"]
            readiness.wait(client, awaited, console, seconds)
    for each in changes:
        if each.verb == "remove":
            version, place = each.manifest["apiVersion"], each.key
            client.delete(version, place.kind, place.name, place.namespace, missing_ok=True)
            console.say(f"removed {place}")
