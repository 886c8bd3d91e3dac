"""The teams that share a cluster: what each has, and what is refused of them."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.catalog.pins import POD_UID, group_of
from megatron_eks.config.cluster import ClusterConfig, Team
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Path, choices, warning
from megatron_eks.config.job import AnyJob, GpuJob
from megatron_eks.plan.cluster.access import check_roles
from megatron_eks.plan.cluster.data_access import DataAccess, plan_data_access, split
from megatron_eks.plan.cluster.network import check_listed_once
from megatron_eks.plan.cluster.platform import CHECKED_NODES, QuotaPlan, is_reserved, plan_quotas
from megatron_eks.plan.cluster.storage import SHARED_DIRECTORIES, SharedDirectories, subfolder
from megatron_eks.plan.cluster.zones import check_partition

TEAMS = "teams"
"""The folder, on the file system and in the bucket, below which each team has its own."""

_MODE = "0770"
_STICKY = "1770"
"""In such a directory everybody adds, and moves what is theirs alone."""
# Above every user that an image brings, and below `nobody`.
_FIRST_UID, _UIDS = 20_000, 40_000

_TEAMS: Path = ("teams",)


@dataclass(frozen=True)
class TeamPlan:
    """A team and its part of the cluster; without `teams` in the file there is one."""

    name: str
    """As job files name it; that of the namespace where the file names no team."""
    namespace: str
    role_arns: tuple[str, ...]
    """Roles whose people work in the namespace; none where the administrators do."""
    gpus: int
    """Its share: GPUs of the cluster at its largest that are its own."""
    may_borrow: bool
    """Whether it may use GPUs that others leave idle."""
    priority: int
    """Of jobs within their shares, higher comes first."""
    uid: int
    """Of its pods."""
    folder: str
    """Of the file system, which its pods mount; empty: the root."""
    quotas: tuple[QuotaPlan, ...]
    data_access: DataAccess
    """Of its jobs."""

    @property
    def group(self) -> str:
        """The Kubernetes group that its roles are in."""
        return group_of(self.name)

    @property
    def prefix(self) -> str:
        """Where its own data is in the cluster's bucket."""
        return f"{TEAMS}/{self.name}"


def plan_teams(config: ClusterConfig, jobs: Iterable[AnyJob]) -> tuple[TeamPlan, ...]:
    """Plan the teams of a configuration that has passed the checks."""
    jobs = tuple(jobs)
    namespace, base = config.platform.namespace, subfolder(config)
    if not config.teams:
        whole = (POD_UID, base, plan_quotas(config), plan_data_access(jobs))
        return (TeamPlan(namespace, namespace, (), most_gpus(config), False, 0, *whole),)  # noqa: FBT003 -- a field
    return tuple(_plan_team(config, each, base, jobs) for each in config.teams)


def _plan_team(config: ClusterConfig, team: Team, base: str, jobs: Iterable[AnyJob]) -> TeamPlan:
    # Who has the platform's namespace has what is there: its volume, user and data.
    is_first = _namespace(team) == config.platform.namespace
    return TeamPlan(
        name=team.name,
        namespace=_namespace(team),
        role_arns=team.role_arns,
        gpus=team.gpus,
        may_borrow=team.may_borrow,
        priority=team.priority,
        uid=POD_UID if is_first else _uid(team.name),
        folder=base if is_first else "/".join(filter(None, (base, TEAMS, team.name))),
        quotas=_quotas(config, team),
        data_access=plan_data_access(job for job in jobs if job.team == team.name),
    )


def plan_directories(
    planned: SharedDirectories, mount: str, teams: Iterable[TeamPlan]
) -> SharedDirectories:
    """Add what teams have of the file system, which the set-up Job sees as a whole.

    Each has a folder of its own user, which its pods mount. Who has the platform's namespace mounts
    what is above them: so root holds both levels, lest anybody moves what is another team's.
    """
    own = [each for each in teams if each.uid != POD_UID]
    if not own:
        return planned
    tops = [(each.uid, f"{mount}/{each.folder}") for each in own]
    folder = tops[0][1].rpartition("/")[0]
    above = folder.rpartition("/")[0]
    held = (above,) if len(own) < len([*teams]) else ()
    taken, made = ([e for e in paths if e not in held] for paths in (planned.taken, planned.made))
    sections: list[tuple[str, ...]] = [(f"0:{POD_UID}", _STICKY, "hold", *held)] if held else []
    for rule, paths in (("take", taken), ("pass", planned.passed), ("make", made)):
        sections += [(f"{POD_UID}:{POD_UID}", _MODE, rule, *paths)] if paths else []
    sections.append(("0:0", _MODE, "take", folder))
    for uid, top in tops:
        below = (f"{top}/{name}" for name in SHARED_DIRECTORIES)
        # FSx makes the directories of data repositories, as root.
        rule = "take" if planned.taken else "make"
        sections.append((f"{uid}:{uid}", _MODE, rule, top, *below))
    return replace(planned, sections=tuple(sections))


def _quotas(config: ClusterConfig, team: Team) -> tuple[QuotaPlan, ...]:
    """Limit a namespace to its team's share; what is lent, only a queue can take back.

    Pods of every priority count: another class would double the share. In the platform's namespace
    it is what checks of pools take, at least.
    """
    pools = [(INSTANCES[pool.instance_type], pool.max_nodes) for pool in config.gpu_pools]
    instances = [instance for instance, _ in pools]
    checked = [each.gpus * min(nodes, CHECKED_NODES) for each, nodes in pools]
    first = _namespace(team) == config.platform.namespace
    gpus = max(most_of(config, team), *(checked if first else (0,)))
    efa = max(-(-gpus * each.efa_interfaces // each.gpus) for each in instances)
    *_, pods, no_system = plan_quotas(config)
    devices = (("requests.nvidia.com/gpu", gpus), ("requests.vpc.amazonaws.com/efa", efa))
    # Nothing reaches a job from outside, and what would let it in stands in the VPC.
    services = (("services.loadbalancers", 0), ("services.nodeports", 0))
    return (QuotaPlan("share", devices), pods, no_system, QuotaPlan("no-way-in", services))


def most_gpus(config: ClusterConfig) -> int:
    """Return the GPUs of all pools at their largest."""
    return sum(INSTANCES[e.instance_type].gpus * e.max_nodes for e in config.gpu_pools)


def most_of(config: ClusterConfig, team: Team) -> int:
    """Return the GPUs that a team can have at once."""
    return most_gpus(config) if team.may_borrow and config.platform.kueue else team.gpus


def _namespace(team: Team) -> str:
    return team.namespace or team.name


def _uid(name: str) -> int:
    """Return the user of a team's pods: it depends on the name alone, as files outlive a list."""
    return _FIRST_UID + int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) % _UIDS


def check_teams(config: ClusterConfig) -> Findings:
    """Yield what keeps teams from sharing a cluster, or from being apart."""
    if not config.teams:
        return
    yield from _apart(config)
    for index, team in enumerate(config.teams):
        path: Path = (*_TEAMS, index)
        name, key = _namespace(team), "namespace" if team.namespace else "name"
        if is_reserved(name):
            found = f"namespace {name} belongs to Kubernetes or to this project's own parts"
            yield Finding(Code.TEAM, (*path, key), found, "name another namespace")
        yield from check_roles((*path, "role_arns"), team.role_arns, "a role of the team")
        for number, arn in enumerate(team.role_arns):
            yield from check_partition((*path, "role_arns", number), arn, config.region)
            if arn in config.access.admin_role_arns:
                found = f"{arn} administers the cluster, and EKS takes a role once"
                remedy = "leave it out: administrators see every team"
                yield Finding(Code.TEAM, (*path, "role_arns", number), found, remedy)
        if team.priority and not config.platform.kueue:
            found = "it orders jobs in queues, and the cluster has none"
            remedy = "set platform.kueue: true, or remove it"
            yield warning(Code.TEAM, (*path, "priority"), found, remedy)
        first = name == config.platform.namespace
        existing = config.storage.lustre.existing
        if first and existing is not None and existing.path is None:
            found = "it would mount the whole of a file system that is not this cluster's alone"
            remedy = "set storage.lustre.existing.path, or give the team another namespace"
            yield Finding(Code.TEAM, (*path, key), found, remedy)
    known = all(each.instance_type in INSTANCES for each in config.gpu_pools)
    total = sum(each.gpus for each in config.teams)
    if known and total > most_gpus(config):
        found = f"the shares are {total} GPUs, and all pools at their largest have "
        remedy = "lower `gpus` of a team, or raise max_nodes of a pool"
        yield Finding(Code.TEAM, _TEAMS, f"{found}{most_gpus(config)}", remedy)


def _apart(config: ClusterConfig) -> Findings:
    shared = {
        "name": ("two teams are called {}", "choose another"),
        "namespace": ("namespace {} is that of team {} too", "give each team its own"),
        "role_arns": ("{} is in team {} too", "use another role"),
        # One pair of names in forty thousand.
        "user": ("its pods would run as user {}, as those of team {} do", "use another name"),
    }
    said: set[int] = set()
    for key, (text, remedy) in shared.items():
        owners: dict[str, int] = {}
        for index, team in enumerate(config.teams):
            one = {"name": team.name, "namespace": _namespace(team), "user": _uid(team.name)}
            values = team.role_arns if key == "role_arns" else (one[key],)
            # IAM has no two roles whose names differ in case alone.
            keys = {str(each).lower(): each for each in values}
            taken = [key for key in keys if owners.setdefault(key, index) != index]
            if taken and index not in said:
                said.add(index)
                place = key if getattr(team, key, None) else "name"
                other = config.teams[owners[taken[0]]].name
                found = text.format(keys[taken[0]], other)
                yield Finding(Code.TEAM, (*_TEAMS, index, place), found, remedy)
        if key == "role_arns":
            for index, team in enumerate(config.teams):
                yield from check_listed_once((*_TEAMS, index, key), team.role_arns)
    if config.platform.pod_security == "privileged":
        found = "a privileged pod reads what any team has mounted on its node"
        remedy = "use restricted: EFA needs no more"
        yield Finding(Code.TEAM, ("platform", "pod_security"), found, remedy)
    if config.storage.efs:
        found = "homes of several teams on one EFS are not supported yet: all see them as one user"
        yield Finding(Code.TEAM, ("storage", "efs"), found, "use false, and homes below /shared")
    seen = {each.name for each in config.teams if _namespace(each) != config.platform.namespace}
    for index, each in enumerate(config.storage.lustre.data_repositories):
        top, _, rest = each.path.strip("/").partition("/")
        owner, _, below = rest.partition("/")
        if (owner not in seen) if top == TEAMS else (len(seen) == len(config.teams)):
            found = f"no team sees {each.path}: each mounts a folder of its own"
            place = below if top == TEAMS else each.path.strip("/")
            remedy = f"use /{TEAMS}/TEAM/{place}, once for each team that reads it"
            path = ("storage", "lustre", "data_repositories", index, "path")
            yield warning(Code.TEAM, path, found, remedy)


def check_team(job: AnyJob, config: ClusterConfig) -> Findings:
    """Yield why a job is no team's, asks for more than its team has, or for what is another's."""
    names = [each.name for each in config.teams]
    if job.team is None or job.team not in names:
        if job.team is None and not names:
            return
        if not names:
            found, remedy = "the cluster file has no teams", "leave it out"
        elif job.team is None:
            found = "the job file names no team"
            remedy = f"add {' or '.join(f'`team: {each}`' for each in names)}"
        else:
            found, remedy = f"no team {job.team!r}", choices(job.team, names)
        yield Finding(Code.JOB_TEAM, ("team",), found, remedy)
        return
    team = config.teams[names.index(job.team)]
    for path, _, uri in (*job.used("fetches"), *job.used("copies")):
        top, _, rest = split(uri)[1].partition("/")
        if top == TEAMS and rest.partition("/")[0] != team.name:
            found = f"{uri} is not of team {team.name}"
            yield Finding(Code.JOB_TEAM, path, found, f"use a key below {TEAMS}/{team.name}/")
    if not isinstance(job, GpuJob):
        return
    pool = next((each for each in config.gpu_pools if each.name == job.pool), None)
    instance = INSTANCES.get(pool.instance_type) if pool else None
    gpus = job.nodes * (job.gpus_per_node or instance.gpus) if instance else 0
    if gpus > (most := most_of(config, team)):
        found = f"{gpus} GPUs, and team {team.name} can have {most}"
        remedy = f"use fewer nodes, or gpus: {gpus} for the team"
        yield Finding(Code.JOB_TEAM, ("nodes",), found, remedy)
