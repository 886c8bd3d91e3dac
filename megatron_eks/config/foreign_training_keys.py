"""What stands in a job file for keys of Hugging Face, NeMo and Megatron about model and training.

Sources: transformers' TrainingArguments and LlamaConfig; Megatron-LM's arguments; NeMo's
megatron_gpt_config.yaml; DeepSpeed's configuration; axolotl's.
"""

from megatron_eks.config.slips import same

_TOKENS = "use train_iters: tokens / (global_batch_size x sequence_length)"
_STEPS = "steps numsteps trainsteps maxiters iterations"

ADAPTERS = same(
    "remove it: jobs train all weights of a model, and no adapters",
    "adapter lora loraalpha loradropout loramodeldir lorar lorarank peft qlora",
)
"""Of a job and of its training."""

_TRAINING = {
    **same("use learning_rate", "lr baselr maxlr"),
    "minlr": "use min_learning_rate",
    **same(
        "use sequence_length",
        "seqlen seqlength sequencelen cutofflen maxlength contextlength maxseqlen maxseqlength "
        "blocksize",
    ),
    **same("use warmup_iters", "warmupsteps lrwarmupiters lrwarmupsteps"),
    **same(
        "use warmup_iters: a number of steps, and not a share of them",
        "warmupratio warmupfraction lrwarmupfraction",
    ),
    **same("use lr_schedule", "lrdecaystyle lrschedulertype scheduler"),
    **same("use clip_grad", "gradclip gradientclipval gradientclipping maxgradnorm"),
    **same("use precision: bf16 or fp8", "bf16 fp16 fp8 dtype mixedprecision"),
    **same("use adam_beta1 and adam_beta2", "betas beta1 beta2 adambetas"),
    **same("use log_interval", "loggingsteps loginterval logeverynsteps"),
    **same("use checkpoint.interval", "saveinterval savesteps"),
    "optimizer": "remove it: it is Adam, and its keys stand here",
    "wd": "use weight_decay",
}

# By a key that tells the block.
OF_TRAINING: dict[str, dict[str, str]] = {
    "expert_tensor": {
        **same(
            "use tensor",
            "tp tpsize tensorparallel tensorparallelsize tensormodelparallelsize",
        ),
        **same(
            "use pipeline",
            "pp ppsize pipelineparallel pipelineparallelsize pipelinemodelparallelsize",
        ),
        **same(
            "use virtual_pipeline",
            "vp vpp vppsize interleave virtualpipelinemodelparallelsize "
            "numvirtualstagesperpipelinerank",
        ),
        **same("use context", "cp cpsize contextparallel contextparallelsize"),
        **same("use expert", "ep epsize expertparallel expertparallelsize expertmodelparallelsize"),
        **same("use expert_tensor", "etp experttensorparallelsize"),
        "sp": "use sequence_parallel",
        **same(
            "remove it: data parallel size is what nodes and the other sizes leave",
            "data dp dpsize dataparallel dataparallelsize worldsize",
        ),
        "numlayerspervirtualpipelinestage": (
            "use virtual_pipeline, the chunks of a stage: num_layers / pipeline / this number"
        ),
        **same(
            "use distributed_optimizer, which is ZeRO's first stage; kind: fsdp shards all",
            "zero zerostage fsdp",
        ),
    },
    "train_iters": {
        **_TRAINING,
        **same("use train_iters", f"maxsteps {_STEPS}"),
        **same(
            "use train_iters: epochs x tokens / those of a step", "epochs numepochs numtrainepochs"
        ),
        "trainsamples": "use train_iters: samples / global_batch_size",
        "traintokens": _TOKENS,
        **same("use global_batch_size", "gbs batchsize trainbatchsize"),
        **same("use micro_batch_size", "mbs perdevicetrainbatchsize trainmicrobatchsizepergpu"),
        **ADAPTERS,
        **same(
            "use global_batch_size: micro_batch_size x data parallel size x this number",
            "gradientaccumulationsteps gradaccum accumulategradbatches nummicrobatches",
        ),
        **same(
            "use recompute: full or selective",
            "activationcheckpointing gradientcheckpointing recomputegranularity",
        ),
        "recomputenumlayers": "use recompute_layers",
        **same('use extra_args: [--adam-eps, "1e-8"]', "adameps adamepsilon"),
        **same("use eval_interval", "evalsteps evalevery valcheckinterval"),
        "limitvalbatches": "use eval_iters",
        **same("use model.hidden_dropout and model.attention_dropout", "dropout"),
        **same("remove it: the plan chooses the kernels", "flashattention useflashattn"),
    },
    "max_steps": {
        **_TRAINING,
        **same("use max_steps", f"trainiters {_STEPS}"),
        **same(
            "use max_steps: epochs x samples / those of a step", "epochs numepochs numtrainepochs"
        ),
        **same(
            "use train_batch_size, the sequences of a step on each GPU",
            "batchsize mbs microbatchsize perdevicetrainbatchsize",
        ),
        **same(
            "use train_batch_size, the sequences of a step on each GPU: this number / GPUs",
            "gbs globalbatchsize",
        ),
        **same(
            "remove it: each step has one batch - raise train_batch_size or nodes",
            "gradientaccumulationsteps gradaccum accumulategradbatches",
        ),
        **same("use sharding: full or hybrid", "shardingstrategy fsdp"),
        **same(
            "remove it: sharding and activation_checkpointing are all there is to choose",
            "fsdpconfig backwardprefetch cpuoffload limitallgathers",
        ),
        **same("use activation_checkpointing: true", "gradientcheckpointing recompute"),
        **same("use validation_interval", "evalsteps evalinterval"),
        **same("remove it: the rate falls until max_steps", "decayiters lrdecayiters"),
    },
    "num_attention_heads": {
        **same("use num_layers", "nlayers layers nlayer numhiddenlayers"),
        **same("use num_attention_heads", "nheads nhead numheads"),
        **same("use num_query_groups", "numkeyvalueheads nkvheads numkvheads groupqueryattention"),
        **same("use ffn_hidden_size", "intermediatesize dff ffndim ffnhidden"),
        "moeintermediatesize": "use moe_ffn_hidden_size",
        **same("use rotary_base", "ropetheta ropebase rotaryembbase"),
        **same("use norm_epsilon", "rmsnormeps layernormeps layernormepsilon normeps"),
        **same(
            "use untie_embeddings_and_output_weights, which says the opposite",
            "tiewordembeddings tieembeddings shareembeddingsandoutputweights",
        ),
        "disablebiaslinear": "use add_bias_linear, which says the opposite",
        **same("use add_bias_linear", "bias usebias mlpbias"),
        **same("use extra_args: [--add-qkv-bias]", "addqkvbias qkvbias attentionbias"),
        **same("use extra_args: [--qk-layernorm]", "qklayernorm qknorm"),
        **same(
            "name a preset, or write num_layers, hidden_size and the other sizes",
            "size params parameters numparameters nparams",
        ),
        **same("use swiglu: true for silu", "hiddenact activation activationfunction"),
        "headdim": "use kv_channels",
        **same("use num_experts", "numlocalexperts nroutedexperts numroutedexperts nexperts"),
        **same("use moe_router_topk", "numexpertspertok topk routertopk expertspertoken"),
        "nsharedexperts": (
            "use moe_shared_expert_intermediate_size: this number x moe_ffn_hidden_size"
        ),
        **same("use hidden_size", "nembd dmodel dim hiddendim modeldim"),
        **same("use training.sequence_length", "seqlength seqlen"),
        **same("use max_position_embeddings", "maxseqlen maxsequencelength npositions"),
        **same("use preset", "name modelname modeltype type architecture architectures"),
        **same(
            "use preset, such as llama-3.1-8b, or write the sizes",
            "hfname huggingfacename modelnameorpath nameorpath pretrainedmodelnameorpath",
        ),
        "qknopeheaddim": "use qk_head_dim",
        "qkropeheaddim": "use qk_pos_emb_head_dim",
        "firstkdensereplace": "use moe_layer_freq: [0, 1, ...], a number for each layer",
        **same(
            "use extra_args: [--moe-router-num-groups, N, --moe-router-group-topk, K]",
            "ngroup topkgroup",
        ),
        "slidingwindow": "use extra_args: [--window-size, 'LEFT,0']",
        "ropescaling": "remove it: presets of models with scaled positions have it",
    },
}
