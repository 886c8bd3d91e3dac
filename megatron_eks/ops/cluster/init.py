"""`meks init`: a cluster file for this account, from what AWS knows and a few answers."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import partial
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from typing import Any

from megatron_eks import RUN_APP
from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, choices, has_errors
from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import parse_cluster
from megatron_eks.folders import clusters_in
from megatron_eks.ops.aws.session import Aws
from megatron_eks.ops.aws.tools import caller_role
from megatron_eks.ops.cluster.capacity import OVER, described, offers_of
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import DONE, FAILED, USAGE, Failure
from megatron_eks.ops.output import replace_file
from megatron_eks.plan.cluster.cluster import check_cluster
from megatron_eks.project import IN_CHECKOUT, ROOT, TEMPLATE

_KUBERNETES = str(ClusterConfig.model_fields["kubernetes_version"].default)
_NAME, _INSTANCE, _NODES, _LUSTRE_GIB = "training", "p4d.24xlarge", 2, 1200
_CAPACITY = "on_demand"
_ZONES = 3
_HERE = Path(__file__).parent
_SCHEMAS, _OWN_SCHEMAS = ROOT / "megatron_eks" / "config" / "schema", ".schema"


@dataclass(frozen=True)
class Answers:
    """What is known of the wanted cluster."""

    name: str
    region: str
    zones: tuple[str, ...]
    kubernetes_version: str
    role: str
    cidrs: tuple[str, ...]
    pool: str
    instance_type: str
    pool_zone: str
    offers: tuple[str, ...]
    """All zones of the region that have the type."""
    max_nodes: int
    capacity: str
    """As the file has it."""
    capacity_gib: int


Given = Mapping[str, str | int | None]
"""What flags have said, by their names; the rest is found out or asked."""


def run(
    file: Path,
    given: Given,
    aws: Aws,
    console: Console,
    today: date,
    *,
    public_address: Callable[[], str],
    force: bool = False,
) -> int:
    """Write the file; raise Failure where one is there, or an answer is missing."""
    if file.exists() and not force:
        found = f"{file} is there already"
        remedy = "name another with --cluster, or overwrite it with --force"
        raise Failure(Code.FILE_EXISTS, found, remedy, exit_code=USAGE)
    if others := set(clusters_in(file.parent)) - {file}:
        found = f"the folder is that of {others.pop()}, and a cluster has a folder of its own"
        remedy = "name another one: --cluster NAME/cluster.yaml"
        raise Failure(Code.FOLDER_OF_ANOTHER, found, remedy, exit_code=USAGE)
    schema = _schema(file)

    def checked(answers: Answers) -> list[Finding]:
        document = read_mapping(_render(answers, schema), str(file))
        config, findings = parse_cluster(document)
        found = document.locate(check_cluster(config, today)) if config else ()
        return [*findings, *found]

    answers = _Questions(given, aws, console, public_address, checked).answers()
    findings = checked(answers)
    if has_errors(findings):
        console.report(findings)
        console.say(f"{file} was not written")
        return FAILED
    replace_file(file, _render(answers, schema), "or name another with --cluster")
    console.report(findings)
    written = (file, *_write_beside(file.parent))
    console.say(f"wrote {', '.join(map(str, written))}; next: meks plan, then meks deploy")
    console.say("into a VPC that exists: see docs/bring-your-own.md first")
    return DONE


@dataclass
class _Questions:
    """Settles one value after the other: by its flag, or by a question.

    An answer with which the file would not be right is told, and asked for again: nothing that was
    answered before is lost. With `--yes` what is proposed is taken.
    """

    _given: Given
    _aws: Aws
    _console: Console
    _public_address: Callable[[], str]
    _checked: Callable[[Answers], list[Finding]]

    def __post_init__(self) -> None:
        # What is known so far; until it is, something that is right.
        there = self._aws.client("ec2").describe_availability_zones(
            Filters=[{"Name": "zone-type", "Values": ["availability-zone"]}]
        )
        self._zones_there = sorted(each["ZoneName"] for each in there["AvailabilityZones"])
        zone, account = self._zones_there[0], self._aws.account()
        self._known = Answers(
            name=_NAME,
            region=self._aws.region,
            zones=self._around(zone),
            kubernetes_version=_KUBERNETES,
            role=f"arn:aws:iam::{account}:role/Admin",
            cidrs=("192.88.99.1/32",),
            pool=_INSTANCE.partition(".")[0],
            instance_type=_INSTANCE,
            pool_zone=zone,
            offers=(zone,),
            max_nodes=_NODES,
            capacity=_capacity(_CAPACITY),
            capacity_gib=_LUSTRE_GIB,
        )

    def answers(self) -> Answers:
        """Return all answers."""
        given, say = self._given, self._console.say
        say(f"a cluster in account {self._aws.account()}, {self._aws.region}")
        role = given.get("admin-role-arn") or caller_role(self._aws)
        if role is None:
            say("your credentials are not a role's, and an administrator must be a role")
        question = "role that administers the cluster (its ARN)"
        self._settle(question, "admin-role-arn", role, lambda a: {"role": a})
        cidr = given.get("public-cidr") or self._cidr()
        question = "address range that reaches the API endpoint"
        self._settle(question, "public-cidr", cidr, lambda a: {"cidrs": (a,)})
        self._settle("name of the cluster", "name", _NAME, lambda a: {"name": a})
        self._settle("instance type", "instance-type", _INSTANCE, self._of_type)
        if given.get("capacity") or self._console.answers:
            question = "capacity: on_demand, spot, or the id of a reservation or Capacity Block"
            self._settle(question, "capacity", _CAPACITY, self._of_capacity)
        zones, zone = self._known.offers, self._known.pool_zone
        if len(zones) > 1 or given.get("zone"):
            self._settle(f"zone ({', '.join(zones)})", "zone", zone, self._of_zone)
        nodes, gib = partial(_number, "max_nodes"), partial(_number, "capacity_gib")
        self._settle("most nodes", "max-nodes", self._known.max_nodes, nodes)
        self._settle("file system, GiB", "lustre-gib", _LUSTRE_GIB, gib)
        return self._known

    def _settle(
        self,
        question: str,
        name: str,
        proposal: str | int | None,
        changes: Callable[[str], dict[str, Any]],
    ) -> None:
        """Take what the flag of a name says; else ask until the file is right with the answer."""
        if (given := self._given.get(name)) is not None:
            self._known = replace(self._known, **changes(str(given)))
            return
        before = {(each.code, each.path) for each in self._checked(self._known)}
        while True:
            answer = self._answer(question, f"--{name}", str(proposal or ""))
            try:
                changed = replace(self._known, **changes(answer))
            except Failure as problem:
                if self._console.yes:
                    raise
                self._console.say(str(problem))
                continue
            new = [e for e in self._checked(changed) if (e.code, e.path) not in before]
            if self._console.yes or not has_errors(new):
                self._known = changed
                return
            for each in (e for e in new if e.level is Level.ERROR):
                self._console.say(f"{each.code} {each.found} - {each.remedy}")

    def _answer(self, question: str, flag: str, proposal: str) -> str:
        if not self._console.yes:
            flags = f"{flag} or --yes" if proposal else flag
            return self._console.ask(question, proposal, flags)
        if not proposal:
            raise Failure(Code.NEEDS_ANSWER, f"no {question}", f"add {flag}", exit_code=USAGE)
        self._console.say(f"{question}: {proposal}")
        return proposal

    def _cidr(self) -> str | None:
        try:
            return f"{IPv4Address(self._public_address().strip())}/32"
        except (OSError, AddressValueError):
            self._console.say("your public address could not be found out")
            return None

    def _of_type(self, kind: str) -> dict[str, Any]:
        """Return what follows from an instance type; raise Failure if the region has none."""
        if kind not in INSTANCES:
            found, remedy = f"unknown instance type {kind!r}", choices(kind, INSTANCES)
            raise Failure(Code.UNKNOWN_INSTANCE_TYPE, found, remedy, exit_code=USAGE)
        offers = offers_of([kind], self._aws.client("ec2"))[kind]
        if not offers:
            found = f"no zone of {self._aws.region} offers {kind}"
            raise Failure(Code.NO_CAPACITY, found, "use another --instance-type or --region")
        changes = {"instance_type": kind, "pool": kind.partition(".")[0], "offers": offers}
        return {**changes, **self._of_zone(offers[0])}

    def _of_capacity(self, answer: str) -> dict[str, Any]:
        """Return what follows from a kind of capacity, or from a reservation that is there."""
        if not answer.startswith("cr-"):
            return {"capacity": _capacity(answer)}
        kind, found = self._known.instance_type, described(answer, self._aws.client("ec2"))
        if found is None or found.state in OVER or found.instance_type != kind:
            what = f"{answer} is {found.state}, of {found.instance_type}" if found else answer
            text = f"{what}: no reservation of {kind} for {self._aws.region}"
            remedy = "name another with --capacity, or another --instance-type"
            raise Failure(Code.NO_CAPACITY, text, remedy, exit_code=USAGE)
        block = found.is_block and found.ends
        known = f"id: {answer}" + (f", ends_at: {found.ends:%Y-%m-%dT%H:%M:%SZ}" if block else "")
        return {
            "capacity": _capacity("capacity_block" if block else "reservation", known),
            "max_nodes": found.count,
            "offers": (found.zone,),
            **self._of_zone(found.zone),
        }

    def _of_zone(self, zone: str) -> dict[str, Any]:
        return {"pool_zone": zone, "zones": self._around(zone)}

    def _around(self, first: str) -> tuple[str, ...]:
        """Return the pool's zone and others of the region, in their order."""
        others = [each for each in self._zones_there if each != first]
        return tuple(sorted([first, *others[: _ZONES - 1]]))


def _capacity(kind: str, known: str = "") -> str:
    return f"{{type: {kind}{', ' if known else ''}{known}}}"


def _number(field: str, answer: str) -> dict[str, int]:
    if not answer.isdecimal():
        raise Failure(Code.WRONG_TYPE, f"{answer!r} is no number", "write digits", exit_code=USAGE)
    return {field: int(answer)}


def _render(answers: Answers, schema: str) -> str:
    """Write the file; `schema` is what editors check it with."""
    given = asdict(answers).items()
    shown = {name: ", ".join(e) if isinstance(e, tuple) else e for name, e in given}
    return (_HERE / "new_cluster.yaml").read_text().format(schema=schema, **shown)


def _schema(cluster_file: Path) -> str:
    """Return where editors find what a cluster file is checked with, as its first line says it."""
    folder = cluster_file.resolve().parent
    schemas = os.path.relpath(_SCHEMAS, folder) if _is_in_checkout(folder) else _OWN_SCHEMAS
    return f"{schemas}/cluster.json"


def _write_beside(folder: Path) -> list[Path]:
    """Write what a folder lacks, and return what is worth a look; what is there stays as it is.

    In a checkout, nothing: it has all of it.
    """
    if _is_in_checkout(folder):
        return []
    settings = json.loads((TEMPLATE / "cdk.json").read_text())
    # The feature flags are those of the installed package.
    context = {key: each for key, each in settings["context"].items() if not key.startswith("@")}
    settings |= {"app": f"meks {RUN_APP}", "context": context}
    texts = {
        "app.py": (TEMPLATE / "app.py").read_text(),
        "cdk.json": json.dumps(settings, indent=2) + "\n",
        "jobs/fetch-tokenizer.yaml": (_HERE / "first_job.yaml").read_text(),
    }
    texts |= {f"{_OWN_SCHEMAS}/{each.name}": each.read_text() for each in _SCHEMAS.glob("*.json")}
    missing = [name for name in texts if not (folder / name).exists()]
    for name in missing:
        (folder / name).parent.mkdir(exist_ok=True)
        replace_file(folder / name, texts[name], "and run it again with --force")
    return [folder / name for name in missing if not name.startswith(_OWN_SCHEMAS)]


def _is_in_checkout(folder: Path) -> bool:
    return IN_CHECKOUT and folder.resolve().is_relative_to(ROOT)
