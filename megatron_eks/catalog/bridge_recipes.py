"""Every recipe of Megatron-Bridge that `train_bridge` finds by its name.

Source: NVIDIA-NeMo/Megatron-Bridge, names that end in `_config` in the __init__.py files below
src/megatron/bridge/recipes, of v0.5.1, v0.6.0 and 067f987 (0.7, 2026-08), and what else 0.6.2 has;
read on 2026-11-24.
"""

import re
from collections.abc import Iterator

# The recipes of each model; a bare number is of GPUs of the kind that most recipes are for: MODEL's
# `peft_8` is MODEL_peft_8gpu_h100_bf16_config. A recipe for a number of GPUs has a second name
# without them, except where that is listed below.
_TABLE = """
deepseek_v2_lite: pretrain_8
deepseek_v2: pretrain_128
deepseek_v3: pretrain_1024 pretrain_256_32nodes
deepseek_v4_flash_no_mtp: sft_32
deepseek_v4_flash: pretrain_32 pretrain_32_muon pretrain_32gpu_h100_fp8mx pretrain_64gpu_gb200_bf16
 pretrain_64gpu_gb200_bf16_muon pretrain_64gpu_gb200_fp8mx pretrain_gb200 pretrain_muon_gb200
 pretrain_mxfp8 pretrain_mxfp8_gb200 sft_32 sft_openmath_thinking_packed
deepseek_v4_pro: pretrain_32gpu_gb300_bf16 pretrain_32gpu_gb300_fp8mx pretrain_mxfp8
exaone45_vl_33b: peft_4 sft_16
exaone4_1p2b: peft_1 pretrain_1 sft_1
exaone_moe_236b_a23b: peft_16 pretrain_64 sft_64
exaone_moe_2_0_750b_a37: peft_128 pretrain_512 sft_512
exaone_moe: peft pretrain sft
flux_12b: pretrain_2 sft_2
gemma2_27b: peft_4 pretrain_16 sft_16
gemma2_2b: peft_1 pretrain_2 sft_1
gemma2_9b: peft_1 pretrain_8 sft_4
gemma3_1b: peft_1 pretrain_1 sft_1
gemma3_vl_12b: peft_1 sft_4
gemma3_vl_27b: peft_4 sft_16
gemma3_vl_4b: peft_1 sft_1
gemma4_e4b: pretrain_2
gemma4_vl_26b: peft_4 sft_8
glm45_355b: peft_16 pretrain_128 sft_128
glm45_air_106b: peft_8 pretrain_32 sft_32
glm52: peft_192gpu_gb200_bf16 peft_208 pretrain_192gpu_gb200_bf16 pretrain_416
 sft_192gpu_gb200_bf16_128k sft_192gpu_gb200_bf16 sft_416 sft_608_200k
glm_45v: peft_32 sft_128
gpt3_175b: pretrain_32
gpt_oss_120b: peft_8 pretrain_64 sft_32 sft_48_32k
gpt_oss_20b: peft_1 peft_1gpu_h100_fp8cs peft_1gpu_h100_fp8mx peft_fp8_current_scaling peft_mxfp8
 pretrain_16 pretrain_16gpu_h100_fp8cs pretrain_16gpu_h100_fp8mx pretrain_fp8_current_scaling
 pretrain_mxfp8 sft_8_32k sft_8 sft_8_openmathinstruct2_thinking_packed sft_8gpu_h100_fp8cs
 sft_8gpu_h100_fp8mx sft_fp8_current_scaling sft_mxfp8
kimi_k25_vl: sft_512
kimi_k2: pretrain_512
llama2_7b: pretrain_2
llama31_405b: peft_32 pretrain_256 pretrain_256_deterministic sft_128
llama31_70b: peft_8 pretrain_32 sft_32
llama31_8b: peft_1 pretrain_2 sft_2
llama32_1b: peft_1 pretrain_1 sft_1
llama32_3b: peft_1 pretrain_1 sft_1
llama3_70b_16k: pretrain
llama3_70b_64k: pretrain
llama3_70b: peft_8 pretrain_256_64k pretrain_32_16k pretrain_32 pretrain_32_deterministic sft_32
llama3_8b_128k: pretrain
llama3_8b_16k: pretrain
llama3_8b_64k: pretrain
llama3_8b_low_precision: pretrain
llama3_8b: peft_1 pretrain_16_16k pretrain_2 pretrain_2gpu_h100_fp8cs pretrain_2gpu_h100_fp8mx
 pretrain_2gpu_h100_nvfp4 pretrain_32_64k pretrain_64_128k sft_2
minimax_m3: pretrain_256 sft_128
ministral3_14b: peft_2 sft_4
ministral3_3b: peft_1 sft_1
ministral3_8b: peft_1 sft_2
moonlight_16b: peft_2 peft_4 pretrain_16 pretrain_8 sft_8_8k sft_8 sft_8_tp1
nemotron_3_5_lightning: peft pretrain_8k pretrain_8k_fsdp pretrain sft sft_openmathinstruct2_packed
 sft_openmathinstruct2_packed_tp1
nemotron_3_nano_4b: peft_8 pretrain_8 sft_8_32k sft_8
nemotron_3_nano_gb200: pretrain
nemotron_3_nano: peft_8 pretrain_8gpu_gb200_bf16 pretrain_8 sft_8
nemotron_3_super: peft_16 peft_1 pretrain_16 pretrain_64gpu_gb200_bf16 sft_16_32k sft_16
nemotron_3_ultra: peft_32_openmathinstruct2_packed pretrain_24 sft_192_openmathinstruct2_packed
nemotron_nano_12b_v2: peft_1 pretrain_4 sft_4
nemotron_nano_9b_v2: peft_1 pretrain_2 sft_2
nemotron_nano_v2_vl_12b: peft_2 sft_4
nemotron_omni_cord_v2_long_context: sft_8
nemotron_omni_cord_v2: peft_4 sft_4
nemotron_omni_valor32k: peft_4 sft_4
nemotronh_47b: peft_4 pretrain_8 sft_16
nemotronh_4b: peft_1 pretrain_1 sft_1
nemotronh_56b: peft_4 pretrain_8 sft_8
nemotronh_8b: peft_1 pretrain_2 sft_2
olmoe_7b: peft_1 pretrain_8 sft_8
qwen25_14b: peft_1 pretrain_4 sft_4
qwen25_1p5b: peft_1 pretrain_1 sft_1
qwen25_32b: peft_8 pretrain_16 sft_16
qwen25_500m: peft_1 pretrain_1 sft_1
qwen25_72b: peft_8 pretrain_32 sft_32
qwen25_7b: peft_1 pretrain_2 sft_2
qwen25_vl_32b: peft_1 sft_16
qwen25_vl_3b: peft_1 sft_1
qwen25_vl_72b: peft_1 sft_32
qwen25_vl_7b: peft_1 sft_2
qwen2_1p5b: peft_1 pretrain_1 sft_1
qwen2_500m: peft_1 pretrain_1 sft_1
qwen2_72b: peft_8 pretrain_32 sft_32
qwen2_7b: peft_1 pretrain_2 sft_2
qwen2_audio_7b: peft_1 sft_1
qwen35_text_35b_a3b: pretrain_8gpu_gb200_bf16
qwen35_text_9b: pretrain_8gpu_gb200_bf16
qwen35_vl_122b_a10b: peft_8 pretrain_128_mock sft_48
qwen35_vl_27b: peft_2 pretrain_16gpu_gb200_bf16_mock pretrain_16_mock sft_16
qwen35_vl_2b: peft_1 sft_1
qwen35_vl_35b_a3b_fsdp: sft
qwen35_vl_35b_a3b: peft_16 peft_4 peft_8gpu_gb200_bf16_functional pretrain_16_functional
 pretrain_8_mock sft_16 sft_2_fsdp sft_8gpu_gb200_bf16_functional sft_long_context_32
qwen35_vl_397b_a17b: peft_32 pretrain_512_mock sft_128
qwen35_vl_4b: peft_1 sft_2
qwen35_vl_800m: peft_1 sft_1
qwen35_vl_9b: peft_1 pretrain_4_mock sft_4
qwen3_14b: peft_1 pretrain_8 sft_8
qwen3_1p7b: peft_1 pretrain_1 sft_1
qwen3_235b_a22b: peft_16 pretrain_256 sft_64
qwen3_30b_a3b: peft_4 pretrain_16 pretrain_8gpu_gb200_fp8mx_functional pretrain_8 sft_16 sft_8
qwen3_32b: peft_1 pretrain_16 sft_16
qwen3_4b: peft_1 pretrain_2 sft_2
qwen3_600m: peft_1 pretrain_1 sft_1 sft_8_128k sft_8_yarn_128k
qwen3_8b: peft_1 pretrain_16 pretrain_4 sft_4 sft_8_32k
qwen3_next_80b_a3b: peft_1 pretrain_32 sft_16
qwen3_omni_30b_a3b: sft_8 sft_8_hf_json
qwen3_vl_235b_a22b: peft_16 pretrain_256_mock sft_32
qwen3_vl_30b_a3b: peft_4 pretrain_8_mock sft_8
qwen3_vl_8b: peft_1 peft_1_energon pretrain_4_mock sft_2
step35_196b_a11b: pretrain_512
step37: sft_4_flickr8k_smoke sft_64_flickr8k
vanilla_gpt: pretrain_1
wan_14b: pretrain_8 sft_8
wan_1_3b: pretrain_8 sft_8
wan_1_3b_text2image: pretrain_1
wan_1_3b_text2video: pretrain_4
"""
_WITHOUT_SHORT_NAME = """
glm52_peft_config glm52_pretrain_config glm52_sft_128k_config glm52_sft_200k_config
glm52_sft_config gpt3_175b_pretrain_config llama3_70b_pretrain_16k_config
llama3_70b_pretrain_64k_config llama3_8b_pretrain_128k_config llama3_8b_pretrain_16k_config
llama3_8b_pretrain_64k_config moonlight_16b_sft_tp1_config nemotron_3_super_sft_32k_config
nemotron_omni_cord_v2_long_context_sft_config qwen35_vl_27b_pretrain_mock_config
qwen35_vl_35b_a3b_peft_functional_config qwen35_vl_35b_a3b_pretrain_functional_config
qwen35_vl_35b_a3b_sft_fsdp_config qwen35_vl_35b_a3b_sft_functional_config
qwen35_vl_35b_a3b_sft_long_context_config qwen3_30b_a3b_pretrain_functional_config
"""
_GPUS = re.compile(r"_\d+gpu_[a-z0-9]+_[a-z0-9]+(_32nodes)?(?=_)")
_BARE = re.compile(r"_(\d+)(?=_|$)")


def _read() -> Iterator[str]:
    yield from ("deepseek_v3_pretrain_config_32nodes", "qwen2_audio_7b_finetune_config")
    for line in _TABLE.strip().replace("\n ", " ").splitlines():
        model, _, recipes = line.partition(": ")
        for recipe in recipes.split():
            whole = _BARE.sub(r"_\1gpu_h100_bf16", recipe, count=1)
            name = f"{model}_{whole}_config"
            yield from (name, _GPUS.sub("", name))


RECIPES = frozenset(_read()) - set(_WITHOUT_SHORT_NAME.split())
