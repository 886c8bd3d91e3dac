"""What a conversion is predicted to take, against what conversions took."""

import pytest

from megatron_eks.catalog.models import PRESETS
from megatron_eks.predict.conversion import conversion


def predicted(name: str, storage: float = 1e12):
    """Predict on a node with a terabyte."""
    model = PRESETS[name]
    return conversion(model, capacity_bytes=10**12, storage_bytes_per_second=storage)


@pytest.mark.parametrize(
    ("name", "published_bytes"),
    [
        # `total_size` of model.safetensors.index.json on Hugging Face.
        ("llama-3.1-8b", 16_060_522_496),
        ("llama-2-7b", 13_476_831_232),
    ],
)
def test_result_is_as_large_as_the_published_weights(name, published_bytes):
    """Both forms hold two bytes a parameter; the older repository has buffers besides."""
    assert predicted(name).result_bytes == pytest.approx(published_bytes, rel=1e-4)


def test_memory_holds_the_weights_twice():
    """And the program itself."""
    found = predicted("llama-3.1-8b")
    assert found.memory_bytes == 2 * found.result_bytes + 8 * 1024**3


def test_slow_storage_takes_longer():
    """Four passes over the weights, each at the slower of storage and process."""
    fast, slow = predicted("llama-3.1-8b"), predicted("llama-3.1-8b", 0.25e9)
    assert slow.seconds - fast.seconds == pytest.approx(4 * fast.result_bytes * (4 - 2) / 1e9)
