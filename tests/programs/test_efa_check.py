"""The count of EFA devices, and the remedy for each reason that NCCL would use TCP instead."""

import pytest

from tests.programs.efa_tree import Tree
from tests.programs.run_program import Ended, run


@pytest.fixture
def p4d(tmp_path):
    """Return a p4d node: four devices, all given to the pod."""
    return Tree(tmp_path, 4)


def check(tree: Tree, expect: int = 4, **environment: str) -> Ended:
    """Run the check on a recorded tree."""
    variables = {"LD_LIBRARY_PATH": "", "NCCL_NET_PLUGIN": "", "NCCL_NET": "", **environment}
    return run("efa_check", "--expect", expect, "--root", tree.root, environment=variables)


def test_whole_node_passes(p4d):
    """All devices, libfabric, the plugin and the limits are as they should be."""
    done = check(p4d)
    assert (done.code, done.findings) == (0, [])
    assert done.summary["devices"] == 4
    assert done.summary["libfabric_devices"] == 4
    assert done.summary["nccl_plugin"] == "/opt/amazon/ofi-nccl/lib/libnccl-net.so"
    assert "rdmap16s27       uverbs0    yes      ACTIVE" in done.stderr


def test_devices_that_the_pod_was_not_given_do_not_count(p4d):
    """Sysfs shows the node's devices in every pod; the pod can use those in /dev alone."""
    p4d.withhold(2)
    done = check(p4d)
    assert done.code == 4
    assert done.findings == [
        (
            "error EFA devices: 2 EFA devices are usable in this pod, 4 expected; the node has 4 - "
            "request vpc.amazonaws.com/efa: 4 in the pod, and see that its user can read and write "
            "/dev/infiniband/uverbs*"
        )
    ]


def test_node_with_too_few_devices_names_the_launch_template(tmp_path):
    """A missing interface is the node group's mistake, not the pod's."""
    done = check(Tree(tmp_path, 3))
    assert done.code == 4
    assert (
        "3 EFA devices are usable in this pod, 4 expected, and the node has no more - compare"
        in (done.findings[0])
    )
    assert "fi_info -p efa -t FI_EP_RDM lists 3 devices, 4 expected" in done.findings[1]


def test_more_devices_than_expected_is_said(p4d):
    """A wrong expectation is worth a warning and stops nothing."""
    done = check(p4d, expect=2)
    assert done.code == 0
    assert done.findings[0].startswith("warning EFA devices: 4 EFA devices are usable")


def test_none_expected_says_what_it_means(tmp_path):
    """On types without EFA the check passes and says that ranks talk over TCP."""
    done = check(Tree(tmp_path, 0), expect=0)
    assert (done.code, done.summary["devices"]) == (0, 0)
    assert "ranks on several nodes talk over TCP" in done.stderr


def test_port_that_is_down_is_an_error(p4d):
    """A device without a link is no device."""
    p4d.set("ports/1/state", "1: DOWN\n", device=2)
    done = check(p4d)
    assert done.code == 4
    assert done.findings[0].startswith("error rdmap18s27: its port is DOWN - ")


def test_plugin_that_is_missing_is_an_error(p4d):
    """Without the plugin NCCL does not know of EFA."""
    p4d.remove("opt/amazon/ofi-nccl/lib/libnccl-net.so")
    done = check(p4d)
    assert done.code == 4
    assert done.findings[0].startswith("error NCCL plugin: no libnccl-net.so in /opt/amazon")
    assert check(p4d, NCCL_NET_PLUGIN="ofi").code == 0


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({"NCCL_NET_PLUGIN": "none"}, "error NCCL_NET_PLUGIN: 'none' switches EFA off - remove it"),
        ({"NCCL_NET": "Socket"}, "error NCCL_NET: 'Socket' makes NCCL use TCP - remove it"),
        (
            {"NCCL_NET_PLUGIN": "spcx"},
            (
                "error NCCL_NET_PLUGIN: 'spcx' makes NCCL load /usr/lib64/libnccl-net-spcx.so, "
                "which knows no EFA - set NCCL_NET_PLUGIN=ofi, or unset it "
                "(NVIDIA-NeMo/Megatron-Bridge#5033)"
            ),
        ),
    ],
)
def test_variables_that_switch_efa_off_are_errors(p4d, environment, found):
    """NVIDIA's image sets one of these, and NCCL then uses TCP without an error."""
    p4d.write("usr/lib64/libnccl-net-spcx.so", "")
    done = check(p4d, **environment)
    assert (done.code, done.findings) == (4, [found])


def test_small_limit_on_locked_memory_is_an_error(p4d):
    """EFA pins its buffers."""
    p4d.limit_locked_memory("65536")
    done = check(p4d)
    assert done.code == 4
    assert done.findings[0].startswith("error locked memory: the limit is 65536 bytes")


def test_a_missing_tool_is_a_warning(p4d):
    """Without fi_info libfabric is not asked, and that is said."""
    p4d.remove("fi_info.txt")
    done = check(p4d)
    assert done.code == 0
    assert [finding.partition(":")[0] for finding in done.findings] == ["warning fi_info"]
