"""Projects as people might write them, before a real API server."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from megatron_eks.kubernetes.client import Client
from tests.properties.projects import Drawn, projects

pytestmark = pytest.mark.control_plane


@settings(
    deadline=None,
    max_examples=4,
    # To look for a smaller example takes minutes here; tests/properties does it without a server.
    phases=[Phase.generate],
    # The server is the same for all examples, and a dry run leaves nothing on it.
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(drawn=projects)
def test_what_is_accepted_is_accepted_by_the_server(client: Client, drawn: Drawn) -> None:
    """Every object of every accepted project, with strict validation of its fields."""
    for each in drawn.manifests() if drawn.plan is not None else ():
        client.apply(each, dry_run=True)
