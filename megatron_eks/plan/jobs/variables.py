"""The verdict on every variable that a job file sets."""

import re
from dataclasses import replace

from megatron_eks.catalog.environment import (
    IMAGE_VARIABLES,
    OF_OUR_IMAGE,
    POLICIES,
    REMOVE,
    TABLE,
    Policy,
    Verdict,
    advised_against,
    allowed,
    meant,
    no_effect,
    refused,
)
from megatron_eks.catalog.environment_values import BY_VALUE
from megatron_eks.catalog.environment_verdicts import BY_NAME, IN_CLEAR, Context, judge
from megatron_eks.catalog.images import is_ours
from megatron_eks.catalog.instances import InstanceType
from megatron_eks.catalog.tables import by_name
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import TOKEN, Finding, Findings, Level, Path
from megatron_eks.config.job import FsdpJob, Job, MegatronJob, MegatronRun
from megatron_eks.plan.jobs.arguments import given
from megatron_eks.plan.jobs.environment import PLANNED, beside_plan, misplaced, unfilled

_QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Of other ways to start ranks: Open MPI, UCX, Intel MPI. Slurm's are read by libraries that guess.
_OF_LAUNCHERS = re.compile(r"(OMPI|UCX|I_MPI|HCOLL|SLURM|MPI4PY)_\w+")
# userinfo of RFC 3986, section 3.2.1, with a password.
_PASSWORD = re.compile(r"://[^\s/@:$]+:[^\s/@$]+@")
# Each library that computes on CPUs has its own.
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_ATTENTION = frozenset(("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN"))
_REGIONS = frozenset(("AWS_REGION", "AWS_DEFAULT_REGION"))
_PROXIES = frozenset(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"))
_OUT_OF_USE = {name: said.split(" | ") for name, said in by_name(TABLE["out_of_use"]).items()}

# Names that a slip leads away from; those with a verdict by value or place are such names as well.
# The last one, of CUDA, is another and looks like a slip of one.
_KNOWN = frozenset(
    {
        *(*POLICIES, *IMAGE_VARIABLES, *BY_VALUE, *BY_NAME, *_THREADS, *_REGIONS, *_OUT_OF_USE),
        "CUDA_DEVICE_MAX_COPY_CONNECTIONS",
    }
)

_VERDICTS = {
    Verdict.SET: (Code.ENVIRONMENT_ADVISED_AGAINST, Level.WARNING),
    Verdict.REFUSED: (Code.ENVIRONMENT_REFUSED, Level.ERROR),
    Verdict.NO_EFFECT: (Code.ENVIRONMENT_NO_EFFECT, Level.WARNING),
    Verdict.ADVISED_AGAINST: (Code.ENVIRONMENT_ADVISED_AGAINST, Level.WARNING),
}


# What needs no Secret either.
_WITHOUT_SECRET = dict.fromkeys(
    ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    "deactivate the key, and remove it: nodes and pods act by roles, and need none",
)
_BY_REFERENCE = (
    "put the value into a Kubernetes Secret (meks secret set), and write runtime.secret_env: "
    "{{{name}: {{secret: ..., key: ...}}}}"
)


def check_variables(job: Job, cluster: ClusterConfig, instance: InstanceType | None) -> Findings:
    """Yield what is wrong with `runtime.env`, on nodes of this type if it is known."""
    yield from _secret_variables(job)
    context = _context(job, cluster, instance)
    for name, value in job.runtime.env.items():
        path: Path = ("runtime", "env", name)
        if not _VARIABLE.fullmatch(name):
            remedy = "use letters, digits and '_', not starting with a digit"
            # NAME=VALUE is the slip that this may be, and no value is quoted.
            first, equals, _ = name.partition("=")
            found = f"{first + equals + '...' * bool(equals)!r} is no variable name"
            path = ("runtime", "env", first)
            yield Finding(Code.ENVIRONMENT_REFUSED, path, found, remedy)
            continue
        policy = misplaced(name, value, cluster) or _as_attention(job, name, value)
        policy = policy or _judge(name, value, context, own_image=not is_ours(job.image))
        policy = _in_clear(name, value) if policy is IN_CLEAR else policy
        if name in _REGIONS and value != cluster.region:
            reason = f"{value!r}, and the cluster is in {cluster.region}: S3 and ECR ask there"
            policy = advised_against(reason)
        if policy.verdict is Verdict.SET:
            policy = beside_plan(job, name, value) or policy
        if policy.verdict is Verdict.ALLOWED:
            before = {each for each in (*job.runtime.env, *PLANNED) if each < name}
            policy = unfilled(value, before) or policy
        if policy.verdict in _VERDICTS:
            code, level = _VERDICTS[policy.verdict]
            yield Finding(code, path, f"{name}: {policy.reason}", policy.instead, level)


def _as_attention(job: Job, name: str, value: str) -> Policy | None:
    """Judge what --attention-backend auto sets too (megatron-core 0.19, language_module.py)."""
    if not isinstance(job, MegatronJob) or name not in _ATTENTION or value != "1":
        return None
    auto = given(job.extra_args).get("--attention-backend", ("auto",)) == ("auto",)
    return advised_against("the plan sets it to this already") if auto else None


def _in_clear(name: str, value: str) -> Policy:
    if name == "AWS_ACCESS_KEY_ID" and TOKEN.search(value):
        # Its form gives the key away: `config/parse.py` tells of it.
        return allowed("it is told of with the whole file")
    instead = _WITHOUT_SECRET.get(name, _BY_REFERENCE.format(name=name))
    return Policy(IN_CLEAR.verdict, IN_CLEAR.reason, instead)


def _secret_variables(job: Job) -> Findings:
    for name in job.runtime.secret_env:
        path: Path = ("runtime", "secret_env", name)
        if not _VARIABLE.fullmatch(name):
            found, remedy = f"{name!r} is no variable name", "use letters, digits and '_'"
        elif name in job.runtime.env:
            found, remedy = f"{name} stands in runtime.env as well", "keep one of both"
        elif name in PLANNED or name in IMAGE_VARIABLES:
            found, remedy = f"{name} is set by the plan or the image, and is no secret", REMOVE
        else:
            continue
        yield Finding(Code.ENVIRONMENT_REFUSED, path, found, remedy)


def _context(job: Job, cluster: ClusterConfig, instance: InstanceType | None) -> Context:
    splits_layers, fsdp = False, isinstance(job, FsdpJob)
    if isinstance(job, MegatronRun):
        splits_layers = job.parallelism.tensor > 1 or job.parallelism.context > 1
        options = given(job.extra_args).keys()
        fsdp = bool(options & {"--use-torch-fsdp2", "--use-megatron-fsdp"})
        # Both want their own number of queues; Megatron leaves the choice to the user.
        splits_layers = splits_layers and "--overlap-moe-expert-parallel-comm" not in options
    return Context(
        instance=instance,
        host_network=job.runtime.host_network,
        splits_layers=splits_layers,
        fsdp=fsdp,
        shared=(cluster.storage.lustre.mount_path,),
    )


def _judge(name: str, value: str, context: Context, *, own_image: bool) -> Policy:
    """Judge a variable of a job file: stricter than for manifests of any origin."""
    if name in OF_OUR_IMAGE and own_image:
        return advised_against("the project's image sets it, and yours may", "see that yours works")
    if name in IMAGE_VARIABLES:
        return refused(IMAGE_VARIABLES[name], "remove it")
    policy = _of_job(name, value) or judge(name, value, context)
    if name == _QUEUES:
        return replace(policy, instead=REMOVE)  # the plan writes the right number
    if name == "NCCL_SOCKET_IFNAME" and context.host_network and policy.verdict is Verdict.ALLOWED:
        policy = _left_in(value) or policy
    if name in _KNOWN or policy.verdict is not Verdict.ALLOWED:
        return policy
    right = meant(name, _KNOWN)
    if right is None:
        return policy
    return advised_against("no library reads this name", f"did you mean {right}?")


def _left_in(value: str) -> Policy | None:
    """Judge a list that leaves in the interface of the Pod Identity agent, which our clusters run.

    aws-samples/aws-do-eks, pull request 54: NCCL took pod-id-link0, 169.254.170.23 on every node,
    and waited for the others there.
    """
    names = [each.removeprefix("=") for each in value.removeprefix("^").split(",")]
    if not value.startswith("^") or any("pod-id-link0".startswith(each) for each in names if each):
        return None
    reason = f"{value!r} leaves in pod-id-link0, whose address is the same on every node"
    return advised_against(reason, f"write {value},pod-id-link")


def _of_job(name: str, value: str) -> Policy | None:
    """Judge what is wrong in the pods of a job alone; manifests of other people differ."""
    if _OF_LAUNCHERS.fullmatch(name):
        return no_effect("torchrun starts the ranks, and no MPI or Slurm")
    if _PASSWORD.search(value):
        reason = "a password in a file or an environment ends in logs"
        return refused(reason, "use an address without it")
    if name.upper() in _PROXIES:
        reason = "it is not known here what must not go there, as Pod Identity and the API server"
        return advised_against(reason, "set network.proxy in the cluster file")
    if name == "NCCL_HOSTID":
        # src/misc/utils.cc, getHostHash: its value stands for the host, in place of name and boot.
        reason = "all pods would count as one node, and look for each other's GPUs there"
        return refused(reason)
    if name in _OUT_OF_USE and value != "0":
        return advised_against(*_OUT_OF_USE[name])
    return None
