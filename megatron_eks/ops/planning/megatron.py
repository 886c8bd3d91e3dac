"""Asks Megatron itself about what a job adds to its arguments, where Megatron is installed."""

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from megatron_eks.catalog.images import is_ours
from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.catalog.job_keys import OF_OPTIONS
from megatron_eks.catalog.megatron_options import OPTIONS, VERSION
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.errors import Path as Place
from megatron_eks.config.job import AnyJob, MegatronBridgeJob, MegatronJob, MegatronRun
from megatron_eks.ops.programs import python_with
from megatron_eks.plan.jobs import environment
from megatron_eks.plan.jobs.arguments import as_options, megatron_arguments, options_among
from megatron_eks.plan.jobs.models import model_shape
from megatron_eks.plan.jobs.resources import gpu_pool, gpus_per_node
from megatron_eks.plan.jobs.training import job_layout
from megatron_eks.project import GET_PROGRAMS

_PROGRAM = Path(__file__).with_name("megatron_answers.py")
_REMEDY = "change it, or remove it"
# It names what the option needs: "must be used in conjunction with", "only when ... is enabled".
_NEEDS = re.compile(r"in conjunction with|\bonly\b|\brequires?\b|\bneeds?\b|must (?:also )?be set")
_OPTION = re.compile(r"[a-z]+(?:-[a-z]+)+")


@dataclass(frozen=True)
class _Added:
    place: Place
    name: str
    words: Sequence[str]


@dataclass
class Megatron:
    """One process of Megatron's that answers for all jobs; the first question starts it."""

    python: str | None = field(default_factory=lambda: python_with("megatron.training"))
    not_asked: str = ""
    """Why a question has no answer, and what to do about it."""
    _process: "subprocess.Popen[str] | None" = None

    def findings(self, job: AnyJob, cluster: ClusterConfig) -> Iterator[Finding]:
        """Yield what Megatron refuses of a job without errors, one finding for each mistake."""
        added = list(_added(job))
        if not isinstance(job, MegatronRun) or not added:
            return
        while refusal := self._answer(job, added, cluster):
            # The mistake is where Megatron takes the rest, or at least says something else of it.
            rests = [[each for each in added if each is not one] for one in added]
            answers = [self._answer(job, rest, cluster) for rest in rests]
            places = [at for at, answer in enumerate(answers) if answer is None]
            places = places or [at for at, answer in enumerate(answers) if answer != refusal]
            at = places[-1] if places else 0
            yield _finding(job, added[at], refusal)
            if not places or answers[at] is None:
                return
            added = rests[at]

    def _answer(
        self, job: MegatronRun, added: Sequence[_Added], cluster: ClusterConfig
    ) -> str | None:
        pool = gpu_pool(job, cluster)
        assert pool is not None  # noqa: S101 -- the job has no errors
        instance = INSTANCES[pool.instance_type]
        words = tuple(word for each in added for word in each.words)
        asked = job.model_copy(update={"extra_args": words})
        layout = job_layout(asked, job.nodes * gpus_per_node(job, instance))
        return self.ask(
            [
                megatron_arguments(asked, model_shape(job.model), layout, "/tmp"),  # noqa: S108
                layout.gpus,
                instance.gpu.compute_capability,
                dict(environment.environment(job, environment.megatron(layout, instance))),
            ]
        )

    def ask(self, question: object) -> str | None:
        """Return what Megatron says against arguments, as `megatron_answers.py` takes them."""
        if self.python is None:
            self.not_asked = f"it is not installed here; to install it: {GET_PROGRAMS}"
        if self.not_asked or self.python is None:
            return None
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: S603 -- our own program
                # Its own folder has a module of Megatron's name.
                [self.python, "-P", "-W", "ignore", _PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        assert self._process.stdin and self._process.stdout  # noqa: PT018, S101 -- they are pipes
        try:
            self._process.stdin.write(f"{json.dumps(question)}\n")
            self._process.stdin.flush()
            answer: str | None = json.loads(self._process.stdout.readline())
        except (BrokenPipeError, ValueError):
            self.not_asked = f"it does not start; to see why: {self.python} -P {_PROGRAM}"
            return None
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


def _added(job: AnyJob) -> Iterator[_Added]:
    if isinstance(job, MegatronJob):
        for start, words in options_among(job.extra_args):
            name = words[0].partition("=")[0]
            # Another option is one of a Megatron of one's own, and has a warning.
            if name in OPTIONS:
                yield _Added(("extra_args", start), f"{name}: ", words)
    elif isinstance(job, MegatronBridgeJob):
        for name, said in as_options(job):
            yield _Added(("overrides", name), "", said)


def _finding(job: MegatronRun, at: _Added, refusal: str) -> Finding:
    # Its parser begins with its own name, and what it refuses is no option or no value of one.
    parsed = refusal.startswith("megatron: error: ")
    code = Code.EXTRA_ARGUMENT if parsed else Code.OPTION_COMBINATION
    if isinstance(job, MegatronBridgeJob):
        code = Code.OVERRIDE
    # An image of one's own may have another Megatron.
    level = Level.ERROR if is_ours(job.image) else Level.WARNING
    found = f"{at.name}Megatron {VERSION} says {refusal.removeprefix('megatron: error: ')!r}"
    # Megatron knows its options alone, and people write keys.
    options = dict.fromkeys(f"--{word}" for word in _OPTION.findall(refusal.replace("_", "-")))
    keys = [f"{option} is {OF_OPTIONS[option]}" for option in options if option in OF_OPTIONS]
    needs = _NEEDS.search(refusal)
    remedy = "add or change what it names, or remove the option" if needs else _REMEDY
    return Finding(code, at.place, found, "; ".join((remedy, *keys)), level)
