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


def _part(name: str) -> Callable[[Assembly], Template]:
    @pytest.fixture(scope="session", name=name.lower())
    def template(assembly: Assembly) -> Template:
        """Return one of the default cluster's templates."""
        return assembly.template(name)

    return template


network, images, cluster = map(_part, ("Network", "Images", "Cluster"))
