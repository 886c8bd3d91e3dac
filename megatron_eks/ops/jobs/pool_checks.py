"""The checks of a pool, in the order in which `meks verify` runs them."""

from typing import Literal, get_args

Check = Literal["nvidia-smi", "efa-check", "storage", "all-reduce", "sample-training"]
CHECKS: tuple[Check, ...] = get_args(Check)
"""From the cheapest on; those after a failed one run too."""
