"""`meks init`: a cluster file for this account, from what AWS knows and a few answers."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, choices, has_errors
from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import parse_cluster
from megatron_eks.ops import files
from megatron_eks.ops.aws.capacity import offers_of
from megatron_eks.ops.aws.cluster_file import Answers, render
from megatron_eks.ops.aws.console import Console
from megatron_eks.ops.aws.identity import caller_role
from megatron_eks.ops.aws.session import Aws
from megatron_eks.ops.endings import DONE, FAILED, USAGE
from megatron_eks.ops.failure import Failure
from megatron_eks.plan.cluster_checks import check_cluster
from megatron_eks.project import ROOT

_SCHEMA = "megatron_eks/config/schema/cluster.json"
_KUBERNETES = str(ClusterConfig.model_fields["kubernetes_version"].default)
_NAME, _INSTANCE, _NODES, _LUSTRE_GIB = "training", "p4d.24xlarge", 2, 1200
_ZONES = 3


@dataclass(frozen=True)
class Wish:
    """What flags have said; the rest is found out or asked."""

    file: Path
    force: bool = False
    name: str | None = None
    instance_type: str | None = None
    zone: str | None = None
    max_nodes: int | None = None
    capacity_gib: int | None = None
    admin_role_arn: str | None = None
    public_cidr: str | None = None


def run(
    wish: Wish,
    aws: Aws,
    console: Console,
    today: date,
    public_address: Callable[[], str],
) -> int:
    """Write the file; raise Failure where one is there, or an answer is missing."""
    if wish.file.exists() and not wish.force:
        found = f"{wish.file} is there already"
        remedy = "name another with --cluster, or overwrite it with --force"
        raise Failure(Code.FILE_EXISTS, found, remedy, exit_code=USAGE)
    _refuse_silence(wish, console)
    answers = _Questions(wish, aws, console, public_address).answers()
    text = render(answers, os.path.relpath(ROOT / _SCHEMA, wish.file.parent or "."))
    findings = _check(text, wish.file, today)
    if has_errors(findings):
        for finding in findings:
            console.say(str(finding))
        console.say(f"{wish.file} was not written")
        return FAILED
    files.replace(wish.file, text, "or name another with --cluster")
    for finding in findings:
        console.say(str(finding))
    console.say(f"wrote {wish.file}; next: meks plan, then meks deploy")
    return DONE


def _refuse_silence(wish: Wish, console: Console) -> None:
    """Name all missing flags at once where nobody can be asked."""
    if console.yes or console.stdin.isatty():
        return
    given = {
        "--name": wish.name,
        "--instance-type": wish.instance_type,
        "--zone": wish.zone,
        "--max-nodes": wish.max_nodes,
        "--lustre-gib": wish.capacity_gib,
        "--admin-role-arn": wish.admin_role_arn,
        "--public-cidr": wish.public_cidr,
    }
    missing = [flag for flag, value in given.items() if value is None]
    if missing:
        remedy = f"add --yes, which takes what is proposed, or: {' '.join(missing)}"
        found = "nobody is there to answer"
        raise Failure(Code.NEEDS_ANSWER, found, remedy, exit_code=USAGE)


class _Questions:
    """Asks for what no flag says; with `--yes`, and without a terminal, takes what it proposes."""

    def __init__(
        self, wish: Wish, aws: Aws, console: Console, public_address: Callable[[], str]
    ) -> None:
        self._wish = wish
        self._aws = aws
        self._console = console
        self._public_address = public_address

    def answers(self) -> Answers:
        """Return all answers."""
        wish, console, region = self._wish, self._console, self._aws.region
        console.say(f"a cluster in account {self._aws.account()}, {region}")
        role = wish.admin_role_arn or self._role()
        cidr = wish.public_cidr or self._cidr()
        name = wish.name or self._ask("name of the cluster", _NAME, "--name")
        kind = wish.instance_type or self._ask("instance type", _INSTANCE, "--instance-type")
        if kind not in INSTANCES:
            found = f"unknown instance type {kind!r}"
            remedy = choices(kind, INSTANCES)
            raise Failure(Code.UNKNOWN_INSTANCE_TYPE, found, remedy, exit_code=USAGE)
        offers = self._offers(kind)
        zone = wish.zone or self._ask(f"zone ({', '.join(offers)})", offers[0], "--zone")
        nodes = wish.max_nodes or self._number("most nodes", _NODES, "--max-nodes")
        size = wish.capacity_gib or self._number("file system, GiB", _LUSTRE_GIB, "--lustre-gib")
        return Answers(
            name=name,
            region=region,
            zones=self._zones(zone),
            kubernetes_version=_KUBERNETES,
            role=role,
            cidrs=(cidr,),
            pool=kind.partition(".")[0],
            instance_type=kind,
            pool_zone=zone,
            offers=offers,
            max_nodes=nodes,
            capacity_gib=size,
        )

    def _role(self) -> str:
        flag = "--admin-role-arn"
        found = caller_role(self._aws)
        if found is None:
            self._console.say("you are no role: an administrator must be one that people assume")
            return self._required("ARN of the role that administers the cluster", flag)
        return self._ask("role that administers the cluster", found, flag)

    def _cidr(self) -> str:
        flag = "--public-cidr"
        try:
            found = f"{IPv4Address(self._public_address().strip())}/32"
        except (OSError, AddressValueError):
            self._console.say("your public address could not be found out")
            return self._required("address range that reaches the API endpoint", flag)
        return self._ask("address range that reaches the API endpoint", found, flag)

    def _offers(self, kind: str) -> tuple[str, ...]:
        """Return the zones that have an instance type."""
        zones = offers_of([kind], self._aws.client("ec2"))[kind]
        if not zones:
            found = f"no zone of {self._aws.region} offers {kind}"
            remedy = "use another --instance-type or --region"
            raise Failure(Code.NO_CAPACITY, found, remedy)
        return zones

    def _zones(self, first: str) -> tuple[str, ...]:
        """Return the pool's zone and others of the region, in their order."""
        found = self._aws.client("ec2").describe_availability_zones(
            Filters=[{"Name": "zone-type", "Values": ["availability-zone"]}]
        )
        others = sorted(
            each["ZoneName"] for each in found["AvailabilityZones"] if each["ZoneName"] != first
        )
        return tuple(sorted([first, *others[: _ZONES - 1]]))

    def _ask(self, question: str, proposal: str, flag: str) -> str:
        if self._console.yes:
            self._console.say(f"{question}: {proposal}")
            return proposal
        return self._console.ask(question, proposal, f"{flag} or --yes")

    def _number(self, question: str, proposal: int, flag: str) -> int:
        answer = self._ask(question, str(proposal), flag)
        if not answer.isdecimal():
            found = f"{answer!r} is no number"
            raise Failure(Code.WRONG_TYPE, found, f"give {flag} a number", exit_code=USAGE)
        return int(answer)

    def _required(self, question: str, flag: str) -> str:
        answer = "" if self._console.yes else self._console.ask(question, "", flag)
        if not answer:
            found = f"no {question}"
            raise Failure(Code.NEEDS_ANSWER, found, f"add {flag}", exit_code=USAGE)
        return answer


def _check(text: str, file: Path, today: date) -> list[Finding]:
    document = read_mapping(text, str(file))
    config, findings = parse_cluster(document)
    if config is not None:
        findings += document.locate(check_cluster(config, today))
    return list(findings)
