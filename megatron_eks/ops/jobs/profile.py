"""`meks profile JOB`: asks a run for traces of some steps, and makes a page of those it gave."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from megatron_eks.catalog.pins import FSDP_BASE_IMAGE
from megatron_eks.config.codes import Code
from megatron_eks.ops import programs
from megatron_eks.ops.data import shared_files
from megatron_eks.ops.data.shared_pod import SharedPod
from megatron_eks.ops.failure import DONE, NOT_FOUND, USAGE, Failure
from megatron_eks.ops.html import Part, table, tag
from megatron_eks.ops.html import page as whole
from megatron_eks.ops.jobs import dev, records, status, trace
from megatron_eks.ops.jobs.report_page import FOLDER, STYLE
from megatron_eks.ops.jobs.trace import Trace
from megatron_eks.ops.kube import jobs
from megatron_eks.ops.opening import Opened
from megatron_eks.ops.output import count, replace_file
from megatron_eks.plan.jobs.job import JobPlan
from megatron_eks.programs.profile_request import Wish

_PROGRAM, _TRACES = "profile_request", "profiles"
_KINDS = ("megatron", "fsdp", "ddp")
_MOST = 15


def run(name: str, wish: Wish | None, out: Path | None, on: Opened) -> int:
    """Ask for steps, or fetch what there is."""
    job = dev.job_named(name, on)
    if job.kind not in _KINDS:
        found = f"{name} is a job of kind {job.kind}; profiles are taken of {', '.join(_KINDS)}"
        remedy = "let its own program write traces, and fetch them: meks data pull"
        raise Failure(Code.NO_PROFILER, found, remedy, exit_code=USAGE)
    place = SharedPod(*on, records.claim_of(on.project, name))
    logs = f"{on.plan.platform.mount_path}/logs/{name}"
    if wish:
        return _ask(place, logs, job, wish, on)
    ended = programs.run(place, _PROGRAM, [logs], on.console, quiet=True)
    folder = ended.summary.get("found")
    if not isinstance(folder, str):
        asked = ended.summary.get("asked")
        when = f"steps {asked['first']} to {asked['last']}" if isinstance(asked, dict) else ""
        found = f"{name} has given no trace; {when or 'nobody'} {'are' if when else 'has'} asked"
        remedy = f"wait for them: meks status {name}" if when else f"meks profile {name} --steps"
        raise Failure(Code.NO_PROFILE, found, remedy, exit_code=NOT_FOUND)
    beside = on.project.file.parent
    here = beside / _TRACES / name / Path(folder).parent.name
    shared_files.pull(place, f"{folder}/", here)
    traces = [trace.read(here / x) for x in ended.names("files") if x.endswith(trace.READABLE)]
    if not traces:
        found = f"nsys has not exported its report yet; what there is of it is in {here}"
        remedy = f"try again in a minute: meks profile {name}; or open it in Nsight Systems"
        raise Failure(Code.NO_PROFILE, found, remedy, exit_code=NOT_FOUND)
    newest = max((each.first, each.last) for each in traces)
    target = out or beside / FOLDER / f"{name}-profile.html"
    shown = [each for each in traces if (each.first, each.last) == newest]
    replace_file(target, page(name, shown, here), "and write it again")
    on.console.write(f"{target}\n")
    return DONE


def _ask(place: SharedPod, logs: str, job: JobPlan, wish: Wish, on: Opened) -> int:
    name = job.name
    live = jobs.find(on.client, on.plan.platform.namespace, name)
    runs = live is not None and not live.ended
    base = {each.name: each.build_args.get("BASE_IMAGE") for each in on.plan.images}["fsdp"]
    if wish.nsys and job.image == on.project.outputs.images["fsdp"] and base == FSDP_BASE_IMAGE:
        found = f"{name} runs in the image fsdp, which has no nsys"
        remedy = "leave --nsys out: PyTorch's profiler needs nothing; or name an image that has it"
        raise Failure(Code.NO_PROFILER, found, remedy, exit_code=USAGE)
    last = status.read(on.client, on.project, name).look.logs.end.last if runs else None
    if last and last.step > wish.first - 2:
        found = f"{name} is at step {last.step}, and step {wish.first - 1} is to warm up"
        remedy = f"ask for later ones: --steps {last.step + 20}:{last.step + 22}"
        raise Failure(Code.PROFILE_TOO_LATE, found, remedy, exit_code=USAGE)
    words = [f"--steps={wish.first}:{wish.last}", *(f"--rank={rank}" for rank in wish.ranks)]
    words += ["--nsys"] * wish.nsys
    if code := programs.run(place, _PROGRAM, [logs, *words], on.console, quiet=True).code:
        return code
    which = (
        f"ranks {', '.join(map(str, wish.ranks))}" if wish.ranks else "its first rank and its last"
    )
    when = "when it gets there" if runs else f"once it runs (meks submit {name})"
    if wish.nsys and runs:
        when = f"after its next start, below nsys: meks cancel {name}, then meks submit {name}"
    on.console.say(f"{name} traces steps {wish.first} to {wish.last} of {which} {when}")
    on.console.say(f"then: meks profile {name}")
    return DONE


def page(name: str, traces: Sequence[Trace], folder: Path) -> str:
    """Write what the traces of the same steps say."""
    first = traces[0]
    rows = [
        (str(x.rank), _time(x.seconds), *(f"{part / x.seconds:.0%}" for _, part in _shares(x)))
        for x in traces
    ]
    title = f"{name}: steps {first.first} to {first.last}"
    parts = [
        tag("h1", title),
        tag("p", f"a profile by meks profile; traces in {folder}", class_="soft"),
        tag("div", *_outcome(traces), class_="outcome"),
        tag("h2", "Ranks"),
        table(("rank", "time", *(names for names, _ in _shares(first))), rows, "123456"),
        tag(
            "p",
            "Communication is the time of NCCL's or Gloo's kernels; exposed is the part of it in "
            "which the rank computed nothing. Profiling itself makes steps slower.",
            class_="soft",
        ),
    ]
    return whole(title, STYLE.read_text(), *parts, *(x for each in traces for x in _rank(each)))


def _outcome(traces: Sequence[Trace]) -> Iterator[Part]:
    worst = max(traces, key=lambda each: (each.waiting + each.idle) / each.seconds)
    computes = worst.computing / worst.seconds
    yield tag("p", tag("strong", f"Rank {worst.rank} computes {computes:.0%} of its time"))
    for share, said in (
        (worst.waiting, "waits for communication that nothing hides"),
        (worst.idle, "has nothing to do: it waits for its CPU, for data, or for another rank"),
    ):
        yield tag("p", f"{share / worst.seconds:.0%} of it {said}.")
    kind = "kernel" if worst.on_gpu else "operator (this run has no GPU)"
    longest = worst.uses[0]
    yield tag("p", f"The longest {kind}: {longest.name}, {longest.seconds / worst.seconds:.0%}.")


def _shares(of: Trace) -> Iterator[tuple[str, float]]:
    yield "computing", of.computing
    yield "communication", of.communicating
    yield "exposed", of.waiting
    yield "idle", of.idle


def _rank(of: Trace) -> Iterator[Part]:
    yield tag("h2", f"Rank {of.rank}: longest {'kernels' if of.on_gpu else 'operators'}")
    rows = [
        (f"{use.seconds / of.seconds:.1%}", _time(use.seconds), f"{use.calls:,}", use.name[:200])
        for use in of.uses[:_MOST]
    ]
    yield table(("share", "time", "calls", "name"), rows, numbers="012")
    if len(of.uses) > _MOST:
        rest = sum(use.seconds for use in of.uses[_MOST:])
        yield tag("p", f"{count(len(of.uses) - _MOST, 'other')}: {_time(rest)}", class_="soft")


def _time(seconds: float) -> str:
    return f"{seconds:,.2f} s" if seconds >= 1 else f"{seconds * 1e3:,.2f} ms"
