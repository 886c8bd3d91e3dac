"""Writes the kubeconfigs of a local cluster."""

import json
from collections.abc import Mapping
from pathlib import Path

KUBECONFIG_NAME = "meks-local"
"""Of cluster and context."""


def write(file: Path, cluster: Mapping[str, str], user: str, secret: Mapping[str, str]) -> None:
    """Write a kubeconfig that its owner alone can read: where to, as whom, and how to prove it."""
    context = {"cluster": KUBECONFIG_NAME, "user": user}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": KUBECONFIG_NAME, "cluster": cluster}],
        "users": [{"name": user, "user": secret}],
        "contexts": [{"name": KUBECONFIG_NAME, "context": context}],
        "current-context": KUBECONFIG_NAME,
    }
    # Whoever waits for the file finds it complete.
    partial = file.with_suffix(".partial")
    partial.touch(mode=0o600)
    # Every JSON text is YAML.
    partial.write_text(json.dumps(config, indent=2))
    partial.replace(file)


def token_review(folder: Path, reviewer: str | None) -> tuple[str, ...]:
    """Return the API server's flags that let somebody else, at a URL, review tokens."""
    if reviewer is None:
        return ()
    file = folder / "token-review.json"
    write(file, {"server": reviewer}, "api-server", {})
    return (
        f"--authentication-token-webhook-config-file={file}",
        "--authentication-token-webhook-version=v1",
        # An access entry that comes or goes is noticed soon; the default is two minutes.
        "--authentication-token-webhook-cache-ttl=5s",
    )
