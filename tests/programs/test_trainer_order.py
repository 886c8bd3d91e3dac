"""The order of samples: a permutation without a table, and the same steps on any ranks."""

import itertools

import pytest

from megatron_eks.programs.trainer.order import Shuffle, rank_samples


@pytest.mark.parametrize("count", [1, 2, 3, 17, 1000, 4097])
def test_shuffle_meets_each_sample_once(count):
    """An epoch is every sample once."""
    shuffle = Shuffle(count, seed=7)
    assert sorted(shuffle[place] for place in range(count)) == list(range(count))


def test_shuffle_depends_on_the_seed_and_moves_samples():
    """Neighbours in the data are not neighbours in the training."""
    first, again, other = (Shuffle(1000, seed) for seed in (1, 1, 2))
    order = [first[place] for place in range(1000)]
    assert order == [again[place] for place in range(1000)]
    assert order != [other[place] for place in range(1000)]
    assert sum(abs(a - b) == 1 for a, b in itertools.pairwise(order)) < 20


@pytest.mark.parametrize(("per_rank", "ranks"), [(8, 1), (4, 2), (2, 4), (1, 8)])
def test_a_step_is_the_same_samples_on_any_ranks(per_rank, ranks):
    """Ranks share a step out without gaps or doubles."""
    taken = [number for rank in range(ranks) for number in rank_samples(24, per_rank, rank, ranks)]
    assert sorted(taken) == list(range(24, 32))
