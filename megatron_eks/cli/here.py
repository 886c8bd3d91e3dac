"""The panel Here: what concerns this machine."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from megatron_eks.cli import args
from megatron_eks.cli.app import HERE, app, command
from megatron_eks.ops.opening import console_here, opened, today

if TYPE_CHECKING:
    from megatron_eks.ops.kube.access import Access
    from megatron_eks.project import Project


@command(HERE)
def local(
    action: Literal["up", "down", "status", "limits"],
    /,
    *,
    nodes: Annotated[int, args.read_by(args.one_or_more, metavar="N")] = 0,
    empty: bool = False,
    watch: bool = False,
    yes: Annotated[
        bool, Parameter(help="with `down`: delete the files of /shared without asking")
    ] = False,
    cluster: args.Cluster = args.DEFAULT,
    output: args.Output = "table",
) -> int:
    """Run a Kubernetes control plane and a local AWS on this machine, without an account.

    `up` starts them, and the first time builds them, in about six minutes. `down` stops them,
    `status` describes them, and `limits` lists what the local AWS does not check.

    meks local up                    all nodes simulated
    meks local up --nodes 2          two of each pool run their pods as processes
    meks local up --nodes 2 --watch  with a Prometheus that watches their jobs
    meks local status -o json
    meks local down --yes

    :param action: what to do
    :param nodes: run pods as processes here, on N nodes of each pool; default: simulate all
    :param watch: run a Prometheus with the rules of `observability` on the jobs of those nodes
    :param empty: start as an empty account, for `meks deploy`, `scale` and `apply`
    """
    from megatron_eks.ops.local import run

    return run(action, cluster, today(), output, nodes=nodes, empty=empty, watch=watch, yes=yes)


@command(HERE, "[JOB]")
def support_bundle(
    job: args.SomeJob = None,
    /,
    *,
    file: Annotated[Path | None, Parameter("--output", metavar="FILE.tar.gz")] = None,
    output: Annotated[args.Format, Parameter("-o", metavar="FORMAT")] = "table",
    reach: args.Reach = args.HERE,
) -> int:
    """Collect what others need to help you in one file, without secrets.

    It has what commands say of files, cluster and job, and neither objects nor logs. What looks
    like a secret is taken out, and account ids, email addresses and public IP addresses too.

    meks support-bundle
    meks support-bundle megatron-cpt-techpulse --output case-1234.tar.gz

    :param job: with its status and what its logs say of its end
    :param file: where to write (default: a name with the time)
    :param output: what is in it, and what not
    """
    from megatron_eks.ops.support.bundle import run

    def access(project: "Project") -> "Access":
        return opened(project.cluster, reach)

    return run(reach.cluster, job, file, access, output=output, console=console_here())


@command(HERE)
def completion(shell: Literal["bash", "zsh", "fish"], /) -> int:
    """Print a completion script: commands, options, jobs and pools.

    source <(meks completion bash)                        in ~/.bashrc
    meks completion zsh > ~/.zfunc/_meks                  a folder of $fpath
    meks completion fish > ~/.config/fish/completions/meks.fish

    :param shell: your shell
    """
    script = app.generate_completion(shell=shell)
    # zsh loads a function from the file of its name, and ours is the one that it looks for.
    sys.stdout.write(script.replace("_cyclopts_meks", "_meks"))
    return 0
