"""Rule over where Megatron-LM loads from, and where it saves to."""

from collections.abc import Iterator
from difflib import SequenceMatcher

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.jobs.megatron_layouts import known_options
from megatron_eks.rules.jobs.training_flags import megatron_flags
from megatron_eks.rules.values import is_placeholder, shown
from megatron_eks.rules.workloads import Container, Manifest

# With these the first load is another one on purpose.
_FROM_ELSEWHERE = frozenset(
    {"--finetune", "--no-load-optim", "--ckpt-step", "--pretrained-checkpoint", "--skip-train"}
)
_LOADS_SO = frozenset({"--config-file", "--yaml-cfg"})
_NEARLY = 0.9


def loaded(manifest: Manifest) -> Iterator[Finding]:
    """Require that a restart loads what the run saved.

    Megatron-LM, megatron/training/checkpointing.py, load_checkpoint: it reads --load alone, and
    begins at iteration 0 where that directory has no checkpoint, and with --finetune always.
    """
    for pod in manifest.pods if manifest.is_job else ():
        for container in pod.containers:
            options: dict[str, tuple[Path, str]] = {
                flag: (path, value) for path, flag, value in megatron_flags(container)
            }
            if "--save" not in options:
                continue
            save = options["--save"][1].rstrip("/")
            if "--load" not in options:
                yield from _never(container)
                continue
            path, load = options["--load"][0], options["--load"][1].rstrip("/")
            if load == save and "--finetune" in options:
                found = "--finetune sets the iteration to 0 at each load, and this loads what it "
                found += "saves: each restart begins anew"
                remedy = "remove it, and name first weights by --pretrained-checkpoint"
                place = options["--finetune"][0]
                yield Finding(Code.CHECKPOINTS_LOST, place, found, remedy, Level.WARNING)
            if load == save or is_placeholder(load) or is_placeholder(save):
                continue
            nearly = SequenceMatcher(None, load, save).ratio() >= _NEARLY
            elsewhere = not _FROM_ELSEWHERE.isdisjoint(options)
            if nearly and not elsewhere:
                found = f"loads {shown(load)} and saves to {shown(save)}: each restart begins anew"
                yield Finding(Code.CHECKPOINTS_LOST, path, found, f"write {save} in both")
            elif not elsewhere:
                found = f"loads {shown(load)}, so a restart does not go on from {shown(save)}"
                remedy = "load what is saved, and name first weights by --pretrained-checkpoint"
                yield Finding(Code.CHECKPOINTS_LOST, path, found, remedy, Level.WARNING)


def _never(container: Container) -> Iterator[Finding]:
    """Warn of a run that saves and never loads; a shell or a file may put the option in."""
    options = known_options(container) or {}
    if options and options.keys().isdisjoint(_LOADS_SO):
        path, value = options["--save"]
        # load_checkpoint takes these wherever --load has none.
        what = "the first weights alone" if "--pretrained-checkpoint" in options else "nothing"
        found = f"saves to {shown(value)} and loads {what}: each restart begins anew"
        remedy = f"add --load {value}"
        yield Finding(Code.CHECKPOINTS_LOST, path, found, remedy, Level.WARNING)
