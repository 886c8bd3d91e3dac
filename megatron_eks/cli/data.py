"""The panel Data: data sets, and the tokens of jobs; ckpt.py has checkpoints."""

from functools import partial
from typing import Annotated

from cyclopts import Parameter

from megatron_eks.cli import args
from megatron_eks.cli.app import DATA, command, group
from megatron_eks.ops.opening import at, console_here, load, on_cluster

data = group(
    DATA,
    "data",
    """Copy data to the cluster's bucket and to /shared, and verify data sets.

    meks data push ./corpus
    meks data fetch s3://BUCKET/data/corpus/ /shared/data/corpus
    meks data pull /shared/logs/JOB
    meks data verify /shared/data/techpulse_text_document
    """,
)
secret = group(
    DATA,
    "secret",
    """Manage the jobs' tokens in the cluster; no value is ever shown.

    meks secret set hugging-face                 asks for it, without echo
    meks secret set hugging-face --key token < FILE
    meks secret rm hugging-face --yes
    """,
)


Uri = Annotated[str, Parameter("S3_URI")]
Dir = Annotated[str | None, Parameter(metavar="DIR")]


@command(data, "LOCAL... [S3_URI]", name="push")
def push_data(
    paths: Annotated[list[str], Parameter("LOCAL... S3_URI")],
    /,
    *,
    cluster: args.Cluster = args.DEFAULT,
    team: args.Name = None,
    output: args.Output = "table",
) -> int:
    """Upload files and folders to S3; unchanged ones are skipped.

    meks data push ./corpus                      to s3://BUCKET/data/corpus
    meks data push a.jsonl b.jsonl s3://BUCKET/data/techpulse

    :param paths: files and folders; without S3_URI to data/ in the cluster's bucket
    :param team: of a cluster with teams: to teams/NAME/data/
    """
    from megatron_eks.ops.data.sets import destination, push
    from megatron_eks.ops.kube.teams import checked

    project = checked(load(cluster, console_here()), team)
    sent, uri = destination(paths, project)
    do = partial(push, sent, uri, project.cluster, output=output)
    return at(args.Reach(cluster), project, None, do)


@command(data, name="fetch")
def fetch_data(
    uri: Uri, directory: Annotated[str, Parameter("DIR")], /, *, reach: args.Reach = args.HERE
) -> int:
    """Copy an S3 object, or everything below a prefix, to /shared.

    meks data fetch s3://BUCKET/data/corpus/ /shared/data/corpus

    :param uri: an object, or a prefix with a slash
    :param directory: below /shared; it appears once it is complete
    """
    from megatron_eks.ops.data.sets import fetch, shared_claim

    project = load(reach.cluster, console_here())
    remedy = f"to this machine: aws s3 cp --recursive {uri} {directory}"
    claim = shared_claim(directory, project.cluster, remedy)
    return at(reach, project, claim, partial(fetch, uri, directory))


@command(data, "PATH [DIR]", name="pull")
def pull_data(
    source: Annotated[str, Parameter("PATH")],
    directory: Annotated[str, Parameter("DIR", show_default=True)] = ".",
    /,
    *,
    reach: args.Reach = args.HERE,
) -> int:
    """Copy a file or folder from /shared to this machine, and check its checksums.

    Never replaces a local file that differs. Run the same command again to resume.

    meks data pull /shared/logs/megatron-cpt-techpulse
    meks data pull /shared/data/ ./data            a slash: its contents

    :param source: below /shared
    :param directory: on this machine
    """
    from megatron_eks.ops.data.sets import pull, shared_claim

    project = load(reach.cluster, console_here())
    claim = shared_claim(source, project.cluster, "name what is there: meks data pull --help")
    return at(reach, project, claim, partial(pull, source, directory))


@command(data, name="verify")
def verify_data(
    prefix: str,
    /,
    *,
    tokenizer: Dir = None,
    reach: args.Reach = args.HERE,
    output: args.Output = "table",
) -> int:
    """Read a prepared data set back; exit with 4 if it differs from what was written.

    meks data verify /shared/data/techpulse_text_document
    meks data verify ./techpulse_text_document     on this machine

    :param prefix: the data set, without .bin and .idx
    :param tokenizer: the one that training will use
    """
    from megatron_eks.ops.data.sets import claim_of, verify

    project = load(reach.cluster, console_here())
    claim = claim_of(prefix, project.cluster)
    return at(reach, project, claim, partial(verify, prefix, tokenizer, output=output))


@command(secret, name="set")
def set_secret(
    name: str,
    /,
    *,
    key: Annotated[str, Parameter(metavar="KEY", show_default=True)] = "token",
    reach: args.Reach = args.HERE,
) -> int:
    """Store a value, from standard input or typed, under a key of a Secret.

    meks secret set hugging-face
    meks secret set hugging-face < FILE

    :param name: as job files name it under token_secret
    :param key: which jobs read
    """
    from megatron_eks.ops.data.secrets import set_value

    return on_cluster(
        reach, lambda on: set_value(on.client, on.project, name, key, on.console), one=True
    )


@command(secret, name="rm")
def remove_secret(name: str, /, *, yes: args.Yes = False, reach: args.Reach = args.HERE) -> int:
    """Delete a Secret, after saying who needs it.

    meks secret rm hugging-face

    :param name: of the Secret
    """
    from megatron_eks.ops.data.secrets import remove

    return on_cluster(
        reach, lambda on: remove(on.client, on.project, name, on.console), yes=yes, one=True
    )
