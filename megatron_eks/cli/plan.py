"""The panel Plan: commands on files, which need no cluster."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import CycloptsError, Parameter

from megatron_eks.cli import args
from megatron_eks.cli.app import PLAN, command
from megatron_eks.ops.console import Console
from megatron_eks.ops.opening import on_cluster, today, with_console


@command(PLAN)
def init(
    *,
    region: Annotated[str | None, Parameter(metavar="REGION")] = None,
    name: args.Name = None,
    instance_type: Annotated[str | None, Parameter(metavar="TYPE")] = None,
    zone: Annotated[str | None, Parameter(metavar="ZONE")] = None,
    max_nodes: args.N = None,
    capacity: Annotated[str | None, Parameter(metavar="KIND|ID")] = None,
    lustre_gib: args.N = None,
    admin_role_arn: args.Arn = None,
    public_cidr: Annotated[str | None, Parameter(metavar="RANGE")] = None,
    force: bool = False,
    yes: args.Yes = False,
    cluster: args.Cluster = args.DEFAULT,
) -> int:
    """Write a cluster file for your account; every question proposes an answer.

    meks init
    meks init --region us-east-2 --instance-type g5.8xlarge --yes

    :param region: default: AWS_REGION, or the profile's
    :param name: of the cluster
    :param instance_type: of the GPU nodes: p4d.24xlarge
    :param zone: of the GPU nodes
    :param max_nodes: the most GPU nodes at any time
    :param capacity: on_demand (default), spot, or the id of a reservation or Capacity Block
    :param lustre_gib: of the file system
    :param admin_role_arn: who administers it; default: your role
    :param public_cidr: who reaches it; default: your address, as checkip.amazonaws.com sees it
    :param force: overwrite an existing file
    """
    from megatron_eks.ops.aws.session import open_session, region_of
    from megatron_eks.ops.aws.tools import public_address
    from megatron_eks.ops.cluster.init import run

    given = {
        "name": name,
        "instance-type": instance_type,
        "zone": zone,
        "max-nodes": max_nodes,
        "capacity": capacity,
        "lustre-gib": lustre_gib,
        "admin-role-arn": admin_role_arn,
        "public-cidr": public_cidr,
    }

    def act(console: Console) -> int:
        aws = open_session(region_of(region, os.environ), os.environ)
        write = partial(run, cluster, given, public_address=public_address, force=force)
        return write(aws, console, today())

    return with_console(act, yes=yes)


@command(PLAN, "[FILE...]")
def validate(
    *files: Annotated[Path, Parameter("FILE")],
    live: bool = False,
    reach: args.Reach = args.HERE,
    output: args.Output = "table",
) -> int:
    """Check a cluster file and its job files.

    meks validate                 the cluster file and all its jobs
    meks validate jobs/fsdp-llama-2-7b.yaml
    meks validate --live          also compare each job with its last run

    :param files: cluster or job files; default: all of the project
    :param live: also ask the cluster what each job changes since its last run
    """
    from megatron_eks.ops.planning.validate import run

    read = partial(run, files, reach.cluster, output, today())
    if not live:
        return read()
    from megatron_eks.ops.jobs.resume import findings

    return on_cluster(reach, lambda on: read(partial(findings, on.client, on.plan)), makes=True)


@command(PLAN, "[JOB]")
def plan(
    job: args.SomeJob = None,
    /,
    *,
    search: Annotated[
        list[str] | None, args.JOBS, Parameter(metavar="[JOB]", consume_multiple=(0, 1))
    ] = None,
    what_if: bool = False,
    cluster: args.Cluster = args.DEFAULT,
    output: args.Output = "table",
) -> int:
    """Show whether jobs fit, how long they take, and what everything costs.

    meks plan
    meks plan megatron-cpt-techpulse      memory, speed, cost and saves of a job
    meks plan -o yaml                     all of the cluster: network, storage, prices
    meks plan -o json | jq .cost
    meks plan --search megatron-cpt-techpulse
    meks plan megatron-cpt-techpulse --what-if

    :param job: everything known about this job
    :param search: the fastest layouts that fit, for one Megatron job or all
    :param what_if: with JOB: the effect of other recomputation, precision, saves or nodes
    """
    if search is not None and what_if:
        raise CycloptsError(msg="--search and --what-if exclude each other: leave one out")
    if search and job:
        raise CycloptsError(msg=f"two jobs, {job} and {''.join(search)}: leave one out")
    if search is not None:
        from megatron_eks.ops.planning.search import run as run_search

        return run_search(cluster, "".join(search) or job or "", output, today())
    if what_if:
        if job is None:
            raise CycloptsError(msg="--what-if needs one job: name it")
        from megatron_eks.ops.planning.what_if import run as run_what_if

        return run_what_if(cluster, job, output, today())
    from megatron_eks.ops.planning.plan import run

    return run(cluster, output, today(), job=job)


@command(PLAN)
def synth(*, cluster: args.Cluster = args.DEFAULT) -> int:
    """Write the CloudFormation templates and the Kubernetes manifests.

    They go to cdk.out/ and dist/ beside the cluster file, as `make synth` does in a checkout.

    meks synth
    meks synth --cluster lab/cluster.yaml
    """
    from megatron_eks.synthesis import synthesise

    return synthesise(cluster)


@command(PLAN)
def predict(file: Path, /, *, output: args.Output = "table") -> int:
    """Predict memory and speed of a run on hardware of your own.

    meks predict run.yaml
    meks predict run.yaml -o json | jq .memory

    :param file: GPU, model, layout and batch; docs/predictions.md
    """
    from megatron_eks.ops.planning.predict import run

    return run(file, output)


@command(PLAN, "PATH...")
def check(
    paths: Annotated[list[Path], Parameter("PATH")], /, *, output: args.Output = "table"
) -> int:
    """Check templates and manifests that this project rendered.

    meks check cdk.out dist            after a change by hand
    meks check dist/jobs -o json

    :param paths: files or folders
    """
    from megatron_eks.ops.planning.check import run

    return run(paths, output, sys.stdout)


@command(PLAN)
def explain(code: Annotated[str, args.CODES], /, *, output: args.Output = "table") -> int:
    """Explain a code: what it means, why, and what to do; or print a page of the docs.

    meks explain MEKS-0502
    meks explain 0502 -o json
    meks explain docs/images.md

    :param code: such as MEKS-0502, or 0502; or a page
    """
    from megatron_eks.ops.explain import run

    return run(code, output, sys.stdout)
