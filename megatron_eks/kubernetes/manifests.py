"""Reads manifests from files."""

from pathlib import Path

import yaml

from megatron_eks.kubernetes.client import Object


def read(folder: Path) -> list[Object]:
    """Return the objects of a folder in the order of application."""
    return [each for file in sorted(folder.glob("*.yaml")) for each in read_file(file)]


def read_file(file: Path) -> list[Object]:
    """Return the objects of one file."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    documents = yaml.load_all(file.read_text(encoding="utf-8"), loader)
    return [document for document in documents if document]
