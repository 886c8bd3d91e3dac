"""The Storage stack: what keeps the file system and the bucket."""

import pytest


@pytest.mark.parametrize(("retain", "policy"), [(True, "Retain"), (False, "Delete")])
def test_retain_decides_over_everything_that_the_stack_holds(changed, retain, policy):
    """Key and rules too: data without its key, or a file system without ports, is lost."""
    template = changed(lambda cluster: cluster["storage"].update(retain=retain)).template("Storage")
    # The jobs' role holds nothing, and is made again.
    for name in template.resources.keys() - {"JobRole"}:
        resource = template.resources[name]
        assert resource["DeletionPolicy"] == policy, name
        assert resource["UpdateReplacePolicy"] == policy, name
