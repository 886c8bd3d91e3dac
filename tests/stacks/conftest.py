"""The templates of the default cluster, and of others that a test describes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.stacks.synthesis import (
    Assembly,
    Edit,
    Template,
    cluster_file,
    synthesise,
    write_sources,
)


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory that images are built from."""
    return write_sources(tmp_path_factory.mktemp("sources") / "assets")


@pytest.fixture(scope="session")
def assembly(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """Return the assembly of the default cluster."""
    return synthesise(cluster_file(), sources, tmp_path_factory.mktemp("default"))


@pytest.fixture
def changed(sources: Path, tmp_path: Path) -> Callable[[Edit], Assembly]:
    """Return a function that synthesises the default cluster with a change."""
    count = iter(range(100))

    def synthesise_changed(edit: Edit) -> Assembly:
        cluster = cluster_file()
        edit(cluster)
        return synthesise(cluster, sources, tmp_path / f"changed-{next(count)}")

    return synthesise_changed


@pytest.fixture(scope="session")
def network(assembly: Assembly) -> Template:
    """Return the default cluster's Network template."""
    return assembly.template("Network")


@pytest.fixture(scope="session")
def storage(assembly: Assembly) -> Template:
    """Return the default cluster's Storage template."""
    return assembly.template("Storage")


@pytest.fixture(scope="session")
def images(assembly: Assembly) -> Template:
    """Return the default cluster's Images template."""
    return assembly.template("Images")


@pytest.fixture(scope="session")
def cluster(assembly: Assembly) -> Template:
    """Return the default cluster's Cluster template."""
    return assembly.template("Cluster")
