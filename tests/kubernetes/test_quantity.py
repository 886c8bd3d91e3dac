"""Quantities mean what Kubernetes takes them for."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from megatron_eks.kubernetes.quantity import quantity


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("8", 8),
        (8, 8),
        (0.5, Fraction(1, 2)),
        ("1E", 10**18),
        ("1E3", 1000),
        ("1.5e-1", Fraction(15, 100)),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("+5", 5),
        ("0.1n", Fraction(1, 10**10)),
        ("-5k", -5000),
    ],
)
def test_sizes(written, size):
    """Each form of the grammar has its size."""
    assert quantity(written) == size


@pytest.mark.parametrize(
    "written",
    [
        *(
            "",
            "Gi",
            "1 Gi",
            "1GB",
            "1gi",
            "1KI",
            "1K i",
            "0x10",
            "1e",
            "1e3k",
            "1e999999999",
            "1.5.",
            "--1",
            "1\n",
            "\uff11",
        ),
        *(True, None, [], {}, float("inf"), float("nan"), "1" * 5000),
    ],
)
def test_nonsense(written):
    """What Kubernetes refuses has no size."""
    assert quantity(written) is None


@given(
    number=st.integers(0, 10**6).map(lambda number: number / 1000),
    suffix=st.sampled_from(["", "n", "u", "m", "k", "M", "G", "T", "P", "E"])
    | st.sampled_from(["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]),
    sign=st.sampled_from(["", "-"]),
)
def test_the_client_library_agrees(number, suffix, sign):
    """Kubernetes' own Python client reads the same number."""
    written = f"{sign}{number}{suffix}"
    assert quantity(written) == Fraction(parse_quantity(written))


@given(st.text() | st.text("0123456789.+-eEinumkKMGTP", max_size=8) | st.floats() | st.integers())
def test_nothing_raises(written):
    """Any text or number has a size or none."""
    quantity(written)
