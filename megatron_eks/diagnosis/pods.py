"""How far a pod has come, from the events of `kubectl describe` and `kubectl get events`."""

import re

_STAGES = (
    re.compile(r"\bNormal\s+(Scheduled|Admitted)\b|Successfully assigned \S+ to "),
    # Whatever held up a node is over when it is ready, too.
    re.compile(r"\bNormal\s+Pulling\b|Pulling image \"|\bNodeReady\b|just became ready"),
    re.compile(r"\bNormal\s+Pulled\b|Successfully pulled image|already present on machine"),
    re.compile(r"\bNormal\s+Started\b|Started container"),
)
_POD = re.compile(r"\bpod/([\w.-]+)")


def stage(text: str) -> int:
    """Return how far a line says that a pod has come: 0 if it says nothing of it."""
    if not any(word in text for word in ("Normal", "image", "container", "eady")):
        return 1 if _STAGES[0].search(text) else 0
    return next((place for place, each in enumerate(_STAGES, 1) if each.search(text)), 0)


def pod(text: str) -> str | None:
    """Return the pod that an event is about, where it says so."""
    found = _POD.search(text)
    return found.group(1) if found else None
