"""Rule over the index of Megatron-LM's data set, which one rank builds and all ranks read."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.jobs.output_places import Place, directory_in, place_of
from megatron_eks.rules.jobs.training_flags import megatron_flags
from megatron_eks.rules.values import is_placeholder, shown
from megatron_eks.rules.workloads import Container, Manifest, Pod

_CACHE, _DATA = "--data-cache-path", "--data-path"
_NO_INDEX = frozenset({"--mock-data", "--dataloader-type", "--sft", "--data-args-path"})


def caches(manifest: Manifest) -> Iterator[Finding]:
    """Require of the data set's index a place that the pods of a job share.

    Megatron-LM, megatron/core/datasets/gpt_dataset.py: global rank 0 alone builds what is not
    there, beside the data where no option says otherwise; NVIDIA/Megatron-LM issues 907 and 1355:
    ranks of other nodes end with FileNotFoundError.
    """
    ranks = [(pod, each) for pod in manifest.pods for each in pod.containers if not each.is_init]
    options = [(*each, list(megatron_flags(each[1]))) for each in ranks]
    pods = sum(pod.replicas or 1 for pod, _, flags in options if flags)
    for pod, container, flags in options if manifest.is_job and pods > 1 else ():
        named = {flag for _, flag, _ in flags}
        wanted = _CACHE if _CACHE in named else _DATA
        for path, flag, written in flags if named.isdisjoint(_NO_INDEX) else ():
            value = directory_in(container, written)
            if flag != wanted or not value.startswith("/") or is_placeholder(value):
                continue
            place = place_of(value, container, pod)
            own = _own_disk(place) if place is not None else None
            if own is None or _is_filled(value, place, pod, container):
                continue
            what = "index" if flag == _CACHE else "index beside it"
            found = f"{flag} {shown(value)} is {own}: rank 0 alone builds the {what}, and the other"
            found += " nodes do not find it"
            remedy = f"name a directory on the shared file system by {_CACHE}"
            # What is copied there may hold an index that was built before.
            level = Level.ERROR if flag == _CACHE else Level.WARNING
            yield Finding(Code.LOST_OUTPUT, path, found, remedy, level)


def _own_disk(place: Place) -> str | None:
    if place.goes_with_pod:
        return "in each pod for itself"
    if place.node_disk:
        return f"on each node's own {place.node_disk}"
    return None if place.mount else "in each pod for itself"


def _is_filled(value: str, place: Place | None, pod: Pod, container: Container) -> bool:
    """Tell whether something may put an index there before: another container, or the script."""
    where = str(place.mount.get("mountPath")) if place and place.mount else value
    others = any(each is not container and where in each.line for each in pod.containers)
    # Data where nothing is mounted are in the image.
    in_image = place is not None and not place.mount and _CACHE not in container.line
    return others or in_image or container.line.count(value) > 1
