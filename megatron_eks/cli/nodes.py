"""The panel Jobs, where nodes are concerned: their checks, their state, their remedies."""

from functools import partial
from typing import Annotated

from cyclopts import CycloptsError, Parameter

from megatron_eks.cli import args
from megatron_eks.cli.app import JOBS, command
from megatron_eks.ops.jobs.pool_checks import CHECKS, Check
from megatron_eks.ops.opening import Opened, on_cluster


@command(JOBS, "[POOL...]")
def verify(
    *pools: Annotated[str, args.POOLS, Parameter("POOL")],
    check: Annotated[list[Check] | None, Parameter(metavar="CHECK")] = None,
    job: Annotated[args.SomeJob, Parameter(metavar="JOB")] = None,
    image: Annotated[str | None, Parameter(metavar="IMAGE")] = None,
    output: args.Output = "table",
    preview: args.Preview = False,
    timeout: args.Timeout = 30,
    reach: args.Reach = args.HERE,
) -> int:
    """Run each pool's checks on its nodes; exit with 4 below a pass mark.

    meks verify                       all checks of all pools, about 10 minutes
    meks verify p4d --check all-reduce -o json > report.json
    meks verify --job megatron-cpt-techpulse      the checklist of a running job
    meks verify --image trainer                   what an image lacks

    :param pools: default: all
    :param check: only this one; may be repeated
    :param job: the checklist of a job instead
    :param image: check an image instead: its name in the cluster, or a URI with a digest
    """
    from megatron_eks.ops.jobs import checklist, verify

    checks = [each for each in CHECKS if not check or each in check]

    def act(on: Opened) -> int:
        if job:
            return checklist.run(on.client, on.plan, job, output, on.console)
        if image:
            return verify.check_image(image, output, on)
        wanted = partial(verify.run, pools=pools, checks=checks, previews=preview)
        return wanted(output, on, wait_seconds=timeout * 60)

    return on_cluster(reach, act, makes=not job, job=job)


@command(JOBS, "[POOL | cordon NODE... | uncordon NODE...]")
def nodes(
    *what: Annotated[str, args.POOLS, Parameter("POOL")],
    suspect: bool = False,
    reason: Annotated[str, Parameter(metavar="TEXT")] = "",
    reach: args.Reach = args.HERE,
    output: args.Output = "table",
) -> int:
    """Show the nodes, find failing ones, and keep jobs off them.

    meks nodes                      all of them
    meks nodes p4d -o json          of a pool
    meks nodes --suspect            those that fail, and why
    meks nodes cordon ip-10-0-3-7.ec2.internal --reason 'Xid 79'
    meks nodes uncordon i-0123456789abcdef0

    :param what: a pool; or cordon or uncordon, and nodes by name or instance id
    :param suspect: those with hardware errors; exit code 4 if there are any
    :param reason: why they are cordoned
    """
    from megatron_eks.ops.jobs.nodes import cordon, run, suspicious, uncordon

    act, *names = what or (None,)
    changes = act in {"cordon", "uncordon"}
    if changes and (not names or suspect):
        raise CycloptsError(msg=f"name the nodes: meks nodes {act} NODE...")
    if not changes and (names or (suspect and act)):
        raise CycloptsError(msg="one POOL, or --suspect, or cordon or uncordon and NODE...")
    if reason and act != "cordon":
        raise CycloptsError(msg="--reason goes with cordon")

    def do(on: Opened) -> int:
        if act == "cordon":
            return cordon(on.client, on.plan, names, reason, on.console)
        if act == "uncordon":
            return uncordon(on.client, on.plan, names, on.console)
        if suspect:
            return suspicious(on.client, on.plan, output, on.console)
        return run(on.client, on.plan, act, output, on.console)

    return on_cluster(reach, do)


@command(JOBS)
def fix(
    code: Annotated[str, args.CODES],
    /,
    *,
    yes: args.Yes = False,
    preview: args.Preview = False,
    timeout: args.Timeout = 2,
    reach: args.Reach = args.HERE,
) -> int:
    """Apply the remedy of a finding inside the cluster: show it, ask, and check the result.

    meks fix MEKS-0845            put the taint back on GPU nodes
    meks fix 0842                 restart the GPU plugin where GPUs are missing

    :param code: as `meks preflight` prints it
    """
    from megatron_eks.ops.jobs.fix import run

    act = partial(run, code, previews=preview, wait_seconds=timeout * 60)
    return on_cluster(reach, act, yes=yes)
