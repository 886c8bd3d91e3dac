"""What stands in a job file for keys of Hugging Face, NeMo and Megatron about model and training.

Sources: transformers' TrainingArguments and LlamaConfig; Megatron-LM's arguments; NeMo's
megatron_gpt_config.yaml; DeepSpeed's configuration; axolotl's.
"""

_TOKENS = "use train_iters: tokens / (global_batch_size x sequence_length)"
_STEPS = "steps numsteps trainsteps maxiters iterations"

ADAPTERS = {
    "remove it: jobs train all weights of a model, and no adapters": (
        "adapter lora loraalpha loradropout loramodeldir lorar lorarank peft qlora"
    ),
}
"""Of a job and of its training."""

_TRAINING = {
    "use learning_rate": "lr baselr maxlr",
    "use min_learning_rate": "minlr",
    "use sequence_length": (
        "seqlen seqlength sequencelen cutofflen maxlength contextlength maxseqlen maxseqlength "
        "blocksize"
    ),
    "use warmup_iters": "warmupsteps lrwarmupiters lrwarmupsteps",
    "use warmup_iters: a number of steps, and not a share of them": (
        "warmupratio warmupfraction lrwarmupfraction"
    ),
    "use lr_schedule": "lrdecaystyle lrschedulertype scheduler",
    "use clip_grad": "gradclip gradientclipval gradientclipping maxgradnorm",
    "use precision: bf16 or fp8": "bf16 fp16 fp8 dtype mixedprecision",
    "use adam_beta1 and adam_beta2": "betas beta1 beta2 adambetas",
    "use log_interval": "loggingsteps loginterval logeverynsteps",
    "use checkpoint.interval": "saveinterval savesteps",
    "remove it: it is Adam, and its keys stand here": "optimizer",
    "use weight_decay": "wd",
}

# By a key that tells the block; what to do about which keys.
OF_TRAINING: dict[str, dict[str, str]] = {
    "expert_tensor": {
        "use tensor": "tp tpsize tensorparallel tensorparallelsize tensormodelparallelsize",
        "use pipeline": "pp ppsize pipelineparallel pipelineparallelsize pipelinemodelparallelsize",
        "use virtual_pipeline": (
            "vp vpp vppsize interleave virtualpipelinemodelparallelsize "
            "numvirtualstagesperpipelinerank"
        ),
        "use context": "cp cpsize contextparallel contextparallelsize",
        "use expert": "ep epsize expertparallel expertparallelsize expertmodelparallelsize",
        "use expert_tensor": "etp experttensorparallelsize",
        "use sequence_parallel": "sp",
        "remove it: data parallel size is what nodes and the other sizes leave": (
            "data dp dpsize dataparallel dataparallelsize worldsize"
        ),
        "use virtual_pipeline, the chunks of a stage: num_layers / pipeline / this number": (
            "numlayerspervirtualpipelinestage"
        ),
        "use distributed_optimizer, which is ZeRO's first stage; kind: fsdp shards all": (
            "zero zerostage fsdp"
        ),
    },
    "train_iters": {
        "use train_iters": f"maxsteps {_STEPS}",
        "use train_iters: epochs x tokens / those of a step": "epochs numepochs numtrainepochs",
        "use train_iters: samples / global_batch_size": "trainsamples",
        _TOKENS: "traintokens",
        "use global_batch_size": "gbs batchsize trainbatchsize",
        "use micro_batch_size": "mbs perdevicetrainbatchsize trainmicrobatchsizepergpu",
        "use global_batch_size: micro_batch_size x data parallel size x this number": (
            "gradientaccumulationsteps gradaccum accumulategradbatches nummicrobatches"
        ),
        "use recompute: full or selective": (
            "activationcheckpointing gradientcheckpointing recomputegranularity"
        ),
        "use recompute_layers": "recomputenumlayers",
        'use extra_args: [--adam-eps, "1e-8"]': "adameps adamepsilon",
        "use eval_interval": "evalsteps evalevery valcheckinterval",
        "use eval_iters": "limitvalbatches",
        "use model.hidden_dropout and model.attention_dropout": "dropout",
        "remove it: the plan chooses the kernels": "flashattention useflashattn",
        **_TRAINING,
        **ADAPTERS,
    },
    "max_steps": {
        "use max_steps": f"trainiters {_STEPS}",
        "use max_steps: epochs x samples / those of a step": "epochs numepochs numtrainepochs",
        "use train_batch_size, the sequences of a step on each GPU": (
            "batchsize mbs microbatchsize perdevicetrainbatchsize"
        ),
        "use train_batch_size, the sequences of a step on each GPU: this number / GPUs": (
            "gbs globalbatchsize"
        ),
        "remove it: each step has one batch - raise train_batch_size or nodes": (
            "gradientaccumulationsteps gradaccum accumulategradbatches"
        ),
        "use sharding: full or hybrid": "shardingstrategy fsdp",
        "remove it: sharding and activation_checkpointing are all there is to choose": (
            "fsdpconfig backwardprefetch cpuoffload limitallgathers"
        ),
        "use activation_checkpointing: true": "gradientcheckpointing recompute",
        "use validation_interval": "evalsteps evalinterval",
        "remove it: the rate falls until max_steps": "decayiters lrdecayiters",
        **_TRAINING,
    },
    "num_attention_heads": {
        "use num_layers": "nlayers layers nlayer numhiddenlayers",
        "use num_attention_heads": "nheads nhead numheads",
        "use num_query_groups": "numkeyvalueheads nkvheads numkvheads groupqueryattention",
        "use ffn_hidden_size": "intermediatesize dff ffndim ffnhidden",
        "use moe_ffn_hidden_size": "moeintermediatesize",
        "use rotary_base": "ropetheta ropebase rotaryembbase",
        "use norm_epsilon": "rmsnormeps layernormeps layernormepsilon normeps",
        "use untie_embeddings_and_output_weights, which says the opposite": (
            "tiewordembeddings tieembeddings shareembeddingsandoutputweights"
        ),
        "use add_bias_linear, which says the opposite": "disablebiaslinear",
        "use add_bias_linear": "bias usebias mlpbias",
        "use extra_args: [--add-qkv-bias]": "addqkvbias qkvbias attentionbias",
        "use extra_args: [--qk-layernorm]": "qklayernorm qknorm",
        "name a preset, or write num_layers, hidden_size and the other sizes": (
            "size params parameters numparameters nparams"
        ),
        "use swiglu: true for silu": "hiddenact activation activationfunction",
        "use kv_channels": "headdim",
        "use num_experts": "numlocalexperts nroutedexperts numroutedexperts nexperts",
        "use moe_router_topk": "numexpertspertok topk routertopk expertspertoken",
        "use moe_shared_expert_intermediate_size: this number x moe_ffn_hidden_size": (
            "nsharedexperts"
        ),
        "use hidden_size": "nembd dmodel dim hiddendim modeldim",
        "use training.sequence_length": "seqlength seqlen",
        "use max_position_embeddings": "maxseqlen maxsequencelength npositions",
        "use preset": "name modelname modeltype type architecture architectures",
        "use preset, such as llama-3.1-8b, or write the sizes": (
            "hfname huggingfacename modelnameorpath nameorpath pretrainedmodelnameorpath"
        ),
        "use qk_head_dim": "qknopeheaddim",
        "use qk_pos_emb_head_dim": "qkropeheaddim",
        "use moe_layer_freq: [0, 1, ...], a number for each layer": "firstkdensereplace",
        "use extra_args: [--moe-router-num-groups, N, --moe-router-group-topk, K]": (
            "ngroup topkgroup"
        ),
        "use extra_args: [--window-size, 'LEFT,0']": "slidingwindow",
        "remove it: presets of models with scaled positions have it": "ropescaling",
    },
}
