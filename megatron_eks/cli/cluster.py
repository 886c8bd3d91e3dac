"""The panel Cluster: a cluster from its account's check to its end."""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from megatron_eks.cli import args
from megatron_eks.cli.app import CLUSTER, command
from megatron_eks.ops.opening import on_aws, on_cluster, opened, with_console

if TYPE_CHECKING:
    from megatron_eks.ops.aws.tools import Tools


@command(CLUSTER, "[PART]")
def preflight(
    part: Literal["aws", "cluster"] | None = None,
    /,
    *,
    reach: args.Reach = args.HERE,
    output: args.Output = "table",
) -> int:
    """Check the account and the cluster, changing nothing; name every problem at once.

    meks preflight                before a deployment; afterwards the cluster too
    meks preflight aws            permissions, quotas, capacity, network, storage
    meks preflight cluster        nodes, devices, platform; needs no AWS
    meks preflight -o json | jq '.checks[] | select(.verdict == "failed")'

    :param part: default: both, as far as there is a cluster
    """
    from megatron_eks.ops.cluster.preflight import run

    return run(reach, part, output)


@command(CLUSTER, "[STACK...]")
def deploy(
    *stacks: Annotated[str, Parameter("STACK")],
    import_existing_resources: bool = False,
    replace_data: bool = False,
    yes: args.Yes = False,
    cluster: args.Cluster = args.DEFAULT,
) -> int:
    """Create or update the stacks of a cluster; no GPU node starts or stops.

    meks deploy                  all stacks; shows each change and asks
    meks deploy Storage --yes    one stack, without questions

    :param stacks: such as Storage or techpulse-Storage
    :param import_existing_resources: adopt what an earlier cluster of this name left behind
    :param replace_data: allow changes that need a new, empty file system, bucket or repository
    """
    import tempfile

    from megatron_eks.ops.aws.cdk import Cdk
    from megatron_eks.ops.cluster.deploy import run

    adopts = import_existing_resources

    def act(tools: "Tools") -> int:
        with tempfile.TemporaryDirectory(prefix="meks-") as folder:
            cdk = Cdk(cluster, tools.aws.region, Path(folder) / "cdk.out")
            return run(stacks, tools, cdk, import_existing=adopts, replace_data=replace_data)

    return on_aws(cluster, act, yes=yes, makes=True)


@command(CLUSTER, "COMMAND...")
def cdk(
    *words: Annotated[str, Parameter("COMMAND", allow_leading_hyphen=True)],
    cluster: args.Cluster = args.DEFAULT,
) -> int:
    """Run the CDK's command line in the version that this project pins.

    Outside a checkout it is downloaded on first use.

    meks cdk diff
    meks cdk deploy --all --outputs-file outputs.json

    :param words: arguments for `cdk`
    """
    from megatron_eks.ops.aws.cdk import run

    return run(cluster, words)


@command(CLUSTER)
def outputs(*, cluster: args.Cluster = args.DEFAULT, output: args.Output = "table") -> int:
    """Write the ids that AWS chose, and the digests of built images, to outputs.json.

    meks outputs
    meks outputs -o json | jq -r '.[].BucketName // empty'
    """
    from megatron_eks.ops.cluster.outputs import run

    return on_aws(cluster, partial(run, output))


@command(CLUSTER, "[IMAGE...]")
def build(
    *images: Annotated[str, Parameter("IMAGE")],
    local: bool = False,
    cluster: args.Cluster = args.DEFAULT,
) -> int:
    """Build, test and push container images; write their digests to outputs.json.

    meks build
    meks build megatron
    meks build fsdp --local    with docker or podman on this machine

    :param images: megatron, fsdp, or a name of images.own; default: all
    :param local: docker or podman on this machine
    """
    from megatron_eks.ops.cluster import build, local_build

    act = local_build.run if local else build.run
    return on_aws(cluster, partial(act, images), makes=True)


@command(CLUSTER)
def kubeconfig(
    *, kubeconfig: args.File = None, role_arn: args.Arn = None, cluster: args.Cluster = args.DEFAULT
) -> int:
    """Add the cluster to a kubeconfig, without any secret.

    meks kubeconfig
    meks kubeconfig --kubeconfig ./kubeconfig --role-arn none

    :param kubeconfig: where to write (default: the first of $KUBECONFIG, or ~/.kube/config)
    :param role_arn: or `none`; default: the first of access.admin_role_arns, unless you are one
    """
    from megatron_eks.kubernetes.kubeconfig import files
    from megatron_eks.ops.cluster.kubeconfig import run

    file, *_ = files(kubeconfig, os.environ, Path.home())
    return on_aws(cluster, lambda tools: run(file, role_arn, tools, os.environ))


@command(CLUSTER)
def token(
    *,
    cluster_name: Annotated[str, Parameter(metavar="NAME")],
    region: Annotated[str, Parameter(metavar="REGION")],
    role_arn: args.Arn = None,
) -> int:
    """Print a token for an EKS cluster; the kubeconfig runs this command.

    meks token --cluster-name techpulse --region us-east-2

    :param cluster_name: of the cluster in EKS
    :param region: of the cluster
    :param role_arn: a role to assume first
    """
    import boto3

    from megatron_eks.ops.aws.session import Aws
    from megatron_eks.ops.cluster.kubeconfig import print_token

    def aws() -> Aws:
        return Aws(boto3.Session(region_name=region), region)

    return with_console(lambda console: print_token(cluster_name, role_arn, aws(), console))


@command(CLUSTER, "[PATH...]")
def apply(
    *paths: Annotated[Path, Parameter("PATH")],
    diff: bool = False,
    yes: args.Yes = False,
    preview: args.Preview = False,
    timeout: args.Timeout = 10,
    reach: args.Reach = args.HERE,
) -> int:
    """Apply manifests in order: show what changes, ask, and wait.

    meks apply                     the platform; leftovers are removed
    meks apply --diff              only show what would change
    meks apply dist/validation     the checks of each pool

    :param paths: manifests or folders of them; default: dist/platform beside the cluster file
    :param diff: only show what would change
    """
    from megatron_eks.ops.cluster.apply import run
    from megatron_eks.project import MANIFESTS

    act = partial(
        run,
        paths,
        platform=reach.cluster.with_name(MANIFESTS) / "platform",
        only_diff=diff,
        previews=preview,
        wait_seconds=timeout * 60,
    )
    return on_cluster(reach, act, yes=yes, makes=not diff)


@command(CLUSTER)
def scale(
    pool: Annotated[str, args.POOLS],
    nodes: Annotated[int, args.read_by(args.count, name="N")],
    /,
    *,
    at: Literal["start"] | None = None,
    when_idle: bool = False,
    minutes: Annotated[int, args.read_by(args.count, metavar="M", show_default=True)] = 30,
    yes: args.Yes = False,
    cluster: args.Cluster = args.DEFAULT,
) -> int:
    """Start GPU nodes and wait until their GPUs are usable, or give nodes back.

    meks scale p4d 2                 two nodes, billed from now on
    meks scale p5 8 --at start       when the pool's Capacity Block starts
    meks scale p4d 0 --when-idle     when the last job's pod has ended

    :param pool: of the cluster file
    :param nodes: how many, up to max_nodes
    :param at: wait for the start of the pool's reservation
    :param when_idle: wait until no job's pod is on the pool
    :param minutes: how long to wait for nodes before they are given back
    """
    from megatron_eks.ops.cluster.scale import Wish, run

    wish = Wish(pool, nodes, at == "start", when_idle, minutes)
    return on_aws(
        cluster,
        lambda tools: run(wish, tools, lambda: opened(tools.plan, args.HERE).client),
        yes=yes,
    )


@command(CLUSTER, "[JOB]")
def cost(
    job: args.SomeJob = None, /, *, reach: args.Reach = args.HERE, output: args.Output = "table"
) -> int:
    """Show what runs now, what it costs, since when and for which job.

    meks cost                            nodes, storage, network, every job
    meks cost megatron-cpt-techpulse     so far, and to its end
    meks cost -o json | jq .usd_per_hour

    :param job: only this job
    """
    from megatron_eks.ops.cluster.billing import run

    return run(reach, job, output)


@command(CLUSTER)
def cleanup(
    *,
    delete_storage: bool = False,
    delete_images: bool = False,
    confirm: Annotated[str, Parameter(metavar="NAME")] = "",
    yes: args.Yes = False,
    cluster: args.Cluster = args.DEFAULT,
) -> int:
    """Delete a cluster in order and say what remains; data stays unless named.

    meks cleanup
    meks cleanup --delete-storage    file systems, buckets, keys and network too

    :param delete_storage: data, checkpoints and the network too
    :param delete_images: repositories with all built images too
    :param confirm: the cluster's name, for --delete-storage
    """
    from megatron_eks.ops.cluster.cleanup import run

    end = partial(run, delete_storage=delete_storage, delete_images=delete_images, confirm=confirm)
    return on_aws(
        cluster, lambda tools: end(tools, lambda: opened(tools.plan, args.HERE).client), yes=yes
    )
