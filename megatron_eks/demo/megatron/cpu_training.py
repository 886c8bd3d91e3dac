"""What Megatron's loop asks of a program: its data sets, its batches and its loss."""

import gc
from collections.abc import Iterator, Sequence
from typing import Any

import cpu_megatron
import torch
from megatron.core import mpu, tensor_parallel
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.enums import ModelType
from megatron.core.tokenizers.utils.build_tokenizer import build_tokenizer
from megatron.training import get_args, training
from megatron.training.argument_utils import gpt_config_from_args, pretrain_cfg_container_from_args
from megatron.training.arguments import parse_and_validate_args
from megatron.training.utils import get_blend_and_blend_per_split

_TOKENS = ("tokens", "labels", "position_ids")
_MASK = "loss_mask"


def run() -> None:
    """Train as the command line says."""
    cpu_megatron.install()
    arguments = parse_and_validate_args()
    if not arguments.async_save:
        cpu_megatron.save_in_this_process()
    configuration = pretrain_cfg_container_from_args(arguments, gpt_config_from_args(arguments))
    data_sets: Any = _data_sets
    # Every rank calls it, not the first of a tensor parallel group alone.
    data_sets.is_distributed = True
    training.pretrain(configuration, data_sets, ModelType.encoder_or_decoder, _forward)
    # Gloo's groups go with Python itself otherwise: a thread of theirs that then wants Python ends
    # a rank that is done by SIGABRT, and its gang begins again.
    mpu.destroy_model_parallel()
    torch.distributed.destroy_process_group()
    gc.collect()


def _data_sets(samples: Sequence[int], **_: object) -> Any:
    """Return the sets for training, validation and test, of so many samples."""
    given = get_args()
    blend, blend_per_split = get_blend_and_blend_per_split(given)
    configuration = GPTDatasetConfig(
        random_seed=given.seed,
        sequence_length=given.seq_length,
        blend=blend,
        blend_per_split=blend_per_split,
        split=given.split,
        tokenizer=build_tokenizer(given),
        path_to_cache=given.data_cache_path,
        reset_position_ids=given.reset_position_ids,
        reset_attention_mask=given.reset_attention_mask,
        eod_mask_loss=given.eod_mask_loss,
        create_attention_mask=False,
    )

    def reads_data() -> bool:
        ends = mpu.is_pipeline_first_stage() or mpu.is_pipeline_last_stage()
        return bool(ends) and mpu.get_tensor_model_parallel_rank() == 0

    return BlendedMegatronDatasetBuilder(GPTDataset, samples, reads_data, configuration).build()


def _batch(samples: Iterator[dict[str, Any]] | None) -> dict[str, Any]:
    """Return a batch where this pipeline stage needs one, the same on its tensor parallel ranks."""
    if not (mpu.is_pipeline_first_stage() or mpu.is_pipeline_last_stage()):
        return dict.fromkeys((*_TOKENS, _MASK))
    read = None
    if mpu.get_tensor_model_parallel_rank() == 0:
        assert samples is not None  # noqa: S101 -- `reads_data` above is the same question
        read = next(samples)
    batch = tensor_parallel.broadcast_data(_TOKENS, read, torch.int64)
    batch |= tensor_parallel.broadcast_data([_MASK], read, torch.float32)
    return dict(batch)


def _forward(samples: Iterator[dict[str, Any]] | None, model: Any) -> tuple[Any, Any]:
    """Run one micro-batch; return what the model makes of it, and how its loss is taken."""
    batch = _batch(samples)
    length = get_args().seq_length
    future = torch.ones(1, 1, length, length, dtype=torch.bool).triu(1)
    losses = model(batch["tokens"], batch["position_ids"], future, labels=batch["labels"])

    def mean(of: Any) -> tuple[Any, Any, dict[str, Any]]:
        mask = batch[_MASK].view(-1)
        total, count = (of.float().view(-1) * mask).sum(), mask.sum().to(torch.int)
        report = torch.cat([total.detach().view(1), count.view(1).float()])
        return total, count, {"lm loss": report}

    return losses, mean
