"""Rules over what mpirun and NCCL's tests are told: interfaces, transports, host files, sizes."""

import re
from collections.abc import Iterator
from itertools import pairwise

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.jobs.mpi_jobs import arguments
from megatron_eks.rules.jobs.training_flags import split_words
from megatron_eks.rules.values import items, mapping, shown, text
from megatron_eks.rules.workloads import GPU, Container, Manifest

_MCA = frozenset({"--mca", "-mca", "--gmca", "-gmca"})
_OWN_WAYS = frozenset({"cm", "ucx"})
_HOST_FILES = frozenset({"--hostfile", "-hostfile", "--machinefile", "-machinefile"})
_IN_V2 = ("launcherCreationPolicy", "mpiImplementation", "runLauncherAsWorker", "sshAuthMountPath")
_TEST = re.compile(
    r"(^|/)(all_(reduce|gather)|reduce(_scatter)?|alltoall|broadcast|gather|scatter|sendrecv)_perf$"
)
_FROM, _TO = ("-b", "--minbytes"), ("-e", "--maxbytes")
_SIZE = re.compile(r"(?P<count>[0-9]+(\.[0-9]+)?)(?P<unit>[kKmMgG]?)[bB]?")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_DEFAULT = "32M"

_Parameters = dict[str, tuple[Path, str]]


def parameters(manifest: Manifest) -> Iterator[Finding]:
    """Require parameters of Open MPI that go together, and its way back to the rank itself.

    Open MPI, ompi_info, btl_tcp_if_include: "mutually exclusive with btl_tcp_if_exclude"; release
    notes, "General Run-Time Support Notes": btl must include self, and the excluded interfaces lo.
    """
    for _, container in _launchers(manifest):
        given = _given(container)
        for kind in ("btl_tcp", "oob_tcp"):
            both = [given.get(f"{kind}_if_{each}") for each in ("include", "exclude")]
            if all(both) and both[1] is not None:
                found = f"{kind}_if_include beside {kind}_if_exclude: only one can be given"
                yield Finding(Code.REFUSED_VARIABLE, both[1][0], found, "remove one of the two")
        # Where the pml has ways of its own, none of these carries a message.
        if given.get("pml", ((), ""))[1] in _OWN_WAYS:
            continue
        path, transports = given.get("btl", ((), ""))
        named = transports and not transports.startswith(("^", "$"))
        if named and "self" not in transports.split(",") and "$" not in transports:
            found = f"btl {shown(transports)} without self: a rank cannot reach itself"
            yield Finding(Code.REFUSED_VARIABLE, path, found, f"write {transports},self")
        path, left_out = given.get("btl_tcp_if_exclude", ((), ""))
        looped = re.search(r"(^|,)(lo|127\.0\.0\.[01](/[0-9]+)?)(,|$)", left_out)
        if left_out and not looped and "$" not in left_out:
            found = f"{shown(left_out)} takes the place of the default, which leaves out lo: ranks "
            found += "of other nodes are looked for at 127.0.0.1"
            yield Finding(Code.REFUSED_VARIABLE, path, found, f"write lo,{left_out}")


def host_files(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a host file that nobody puts into the launcher.

    kubeflow/mpi-operator, v2beta1: the operator mounts /etc/mpi/hostfile, and names it by
    OMPI_MCA_orte_default_hostfile; mpirun ends where the named file does not open.
    """
    for before, container in _launchers(manifest):
        if (manifest.group, manifest.kind) != ("kubeflow.org", "MPIJob"):
            continue
        mounts = [mapping(each) or {} for each in items(container.body.get("volumeMounts")) or []]
        places = ["/etc/mpi", *(text(each.get("mountPath")) or "/" for each in mounts)]
        for (_, word), (path, value) in pairwise(arguments(container)):
            inside = any(f"{value}/".startswith(f"{each.rstrip('/')}/") for each in places)
            written = container.line.count(value) > 1 or any(value in each.line for each in before)
            if word in _HOST_FILES and value.startswith("/") and not inside and not written:
                found = f"{shown(value)} is in no mount, and the operator's is /etc/mpi/hostfile"
                remedy = f"remove {word}: mpirun reads that one by itself"
                yield Finding(Code.FILE_NOT_MOUNTED, path, found, remedy, Level.WARNING)


def hosts(manifest: Manifest) -> Iterator[Finding]:
    """Refuse ranks that are all started in a launcher, which has no GPUs.

    Open MPI, mpirun(1), --host: it takes the place of the host file, which the operator names and
    which lists the workers.
    """
    if manifest.kind != "MPIJob" or manifest.spec.get("runLauncherAsWorker") is True:
        return
    for _, container in _launchers(manifest):
        for (_, word), (path, value) in pairwise(arguments(container)):
            local = re.fullmatch(r"(localhost|127\.0\.0\.1)(:[0-9]+)?", value)
            if word in {"-H", "-host", "--host"} and local and not container.names(GPU):
                found = f"{word} {shown(value)}: every rank starts in the launcher, which has no "
                found += "GPU, and the workers idle"
                remedy = f"remove {word}: mpirun reads the operator's host file by itself"
                yield Finding(Code.PROCESSES_PER_NODE, path, found, remedy)


def versions(manifest: Manifest) -> Iterator[Finding]:
    """Refuse in an MPIJob of the training operator what only the MPI operator's has.

    kubeflow/mpi-operator, v2beta1, MPIJobSpec, and kubeflow/trainer v1.9.4, mpi_types.go.
    """
    if text(manifest.body.get("apiVersion")) != "kubeflow.org/v1" or manifest.kind != "MPIJob":
        return
    for key in _IN_V2:
        if key in manifest.spec:
            found = f"kubeflow.org/v1 has no {key}: it is refused, or nobody reads it"
            remedy = "use kubeflow.org/v2beta1, of the MPI operator"
            yield manifest.find(Code.API_VERSION, ("spec", key), found, remedy)


def sizes(manifest: Manifest) -> Iterator[Finding]:
    """Refuse NCCL's tests from a size to a smaller one.

    NVIDIA/nccl-tests, README: -b is the size to start with and -e the one to end at, both 32M where
    nothing is said.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            words = [(path, word) for path, line in container.words for word in split_words(line)]
            at = next((n for n, (_, word) in enumerate(words) if _TEST.search(word)), None)
            if at is None:
                continue
            given = {word: (path, value) for (_, word), (path, value) in pairwise(words[at:])}
            least, most = (
                next((given[each] for each in names if each in given), ((), _DEFAULT))
                for names in (_FROM, _TO)
            )
            first, last = _bytes(least[1]), _bytes(most[1])
            if first is not None and last is not None and first > last:
                found = f"from {least[1]} to {most[1]}: no size is measured"
                remedy = "write the smaller one at -b, and the larger one at -e"
                yield Finding(Code.REFUSED_IN_POD, least[0] or most[0], found, remedy)


def _bytes(written: str) -> float | None:
    match = _SIZE.fullmatch(written)
    return float(match["count"]) * _UNITS[match["unit"].lower()] if match else None


def _launchers(manifest: Manifest) -> Iterator[tuple[list[Container], Container]]:
    """Return the containers that start mpirun, each with what runs in its pod before."""
    for pod in manifest.pods:
        for container in pod.containers:
            if not container.is_init and arguments(container):
                yield [each for each in pod.containers if each.is_init], container


def _given(container: Container) -> _Parameters:
    words = arguments(container)
    found: _Parameters = {
        each.name.removeprefix("OMPI_MCA_"): ((*container.path, "env", each.index), each.value)
        for each in container.variables
        if each.name.startswith("OMPI_MCA_") and each.value
    }
    for (_, word), (path, name), (_, value) in zip(words, words[1:], words[2:], strict=False):
        if word in _MCA:
            found[name] = (path, value)
    return found
