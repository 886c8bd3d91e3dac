"""What stands in a job file for keys of PyTorchJobs, Hugging Face, NeMo, Megatron and others.

Sources: training-operator's PyTorchJob; transformers' TrainingArguments and LlamaConfig;
Megatron-LM's arguments; NeMo's megatron_gpt_config.yaml; DeepSpeed's configuration; axolotl's;
nccl-tests' README.
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


_POD = "remove it: pool says which nodes, and the plan writes the pod"
_SHARE = "remove it: CPU, memory, /dev/shm and EFA interfaces follow from gpus_per_node"
_PROGRAM = "remove it: kind says which program runs"
_TOKENIZER = "use tokenizer: a folder with a Hugging Face tokenizer"
_TOKENIZERS = "tokenizertype tokenizermodel tokenizernameorpath tokenizerpath vocabfile mergefile"

_ZERO = "remove it: parallelism.distributed_optimizer is ZeRO's first stage; kind: fsdp shards all"
_BASE = "use model: the name of a preset, and checkpoint.pretrained for its weights"
_BASES = "basemodel hfmodel modelname modelnameorpath pretrainedmodelnameorpath"

_RESTARTS = "backofflimit maxrestarts restarts restartpolicy"
_KEPT = "ttl ttlsecondsafterfinished"
_POD_KEYS = "affinity nodeselector tolerations volumemounts volumes securitycontext"
_ENV = "environment envs envvars environmentvariables variables"
_GPUS = "gpus gpucount numgpus nprocpernode nproc gpusperworker"


# By a key that tells the block; what to do about which keys.
OF_JOBS: dict[str, dict[str, str]] = {
    "kind": {
        _POD: _POD_KEYS,
        "remove it: platform.namespace of the cluster file says it": "namespace",
        _ZERO: "deepspeed deepspeedconfig fsdp fsdpconfig zerooptimization zerostage",
        _BASE: _BASES,
        "remove it: kind and parallelism say how a run is divided": "strategy accelerator",
        "remove it: jobs of this kind train all weights": "finetuningtype stage template",
        "use extra_args: TensorBoard is always written to, and --wandb-project asks for W&B": (
            "reportto loggers"
        ),
        "remove it: no secret stands in a file; a fetch job takes token_secret": (
            "hftoken huggingfacetoken token"
        ),
        "use nodes, gpus_per_node and training, which NeMo's trainer has together": "trainer",
        "use checkpoint, which NeMo's exp_manager is about": "expmanager",
        "use training: learning_rate, weight_decay, adam_beta1 and adam_beta2": "optim",
        "use runtime.gang_restarts": _RESTARTS,
        "use runtime.keep_days": _KEPT,
        "use runtime.priority_class": "priority priorityclassname",
        "use runtime.env: names and values": _ENV,
        "remove it: pool says on which nodes it runs": "cluster instancetype",
        "remove it, with what is below: name and nodes stand at the top": "metadata spec",
        **ADAPTERS,
    },
    "gpus_per_node": {
        "use gpus_per_node, or leave it out: the default is all GPUs of the instance type": _GPUS,
        "use nodes: each runs one pod, with one process for each of its GPUs": (
            "replicas numnodes nnodes workers workerreplicas"
        ),
        _SHARE: "resources limits cpu memory efa shmsize",
        _PROGRAM: "command args script entrypoint",
    },
    "shm_gib": {
        "use shm_gib, the number alone": "shm shmsize devshm",
        "use distributed_timeout_minutes": (
            "timeout ddptimeout nccltimeout timeoutminutes distributedtimeout"
        ),
        "use gang_restarts": _RESTARTS,
        "use keep_days": _KEPT,
        "use priority_class": "priority priorityclassname",
        "use rendezvous": "rdzvbackend",
        "use env: names and values": _ENV,
        "use gpus_per_node, at the top of the file": _GPUS,
        _SHARE: "resources limits requests cpu memory efa hugepages",
        "remove it: torchrun and the operator set it": "rdzvendpoint masteraddr masterport",
        _POD: _POD_KEYS,
        _PROGRAM: "command args script entrypoint",
    },
    # Of Megatron, and of FSDP and DDP.
    "split": {
        "use prefix, without .bin and .idx; or blend for several corpora": (
            "datapath dataprefix path paths dataset traindata traindatapath"
        ),
        _TOKENIZER: _TOKENIZERS,
        "use cache_dir": "cache datacachepath indexcachedir indexmappingdir",
        "use split: [98, 2, 0]": "splits splitsstring trainsplit",
        "use blend: [{weight: 0.7, prefix: ...}, ...]": "weights",
        "use training.sequence_length": "seqlength seqlen",
        "remove it: Megatron shuffles, by training.seed": "shuffle",
    },
    "configuration": {
        "use dataset": "datapath path name datasetname datasetnameorpath traindata",
        "use dataset, which takes the prefix of an indexed data set too": "prefix",
        "remove it: dataset is one corpus here; kind: megatron blends": "blend",
        "use configuration": "datasetconfig datasetconfigname subset",
        "use tokenizer: a folder, or a name of Hugging Face": _TOKENIZERS,
        "use training.sequence_length": "seqlength seqlen",
    },
    "keep_last": {
        "use directory": "dir path save savedir outputdir",
        "use directory, which a run goes on from; pretrained are weights to start from": "load",
        "use interval": "saveinterval savesteps saveevery everynsteps every frequency",
        "use keep_last": "savetotallimit keep keepn maxtokeep savetopk",
        "remove it: a run goes on from the last checkpoint in directory by itself": (
            "resume resumefromcheckpoint resumeifexists autoresume"
        ),
        "use pretrained: weights to start from while directory is empty": (
            "finetune noloadoptim basemodel pretrainedcheckpoint pretrainedpath loadpath initfrom"
        ),
        "use s3_uri": "s3 s3path s3prefix s3bucket upload uploadto remote",
    },
    "pass_busbw_gb_s": {
        "remove it: each GPU of each node has a rank": "np ranks processes ntasks",
        "use min_bytes, a number of bytes": "b begin minsize",
        "use max_bytes, a number of bytes": "e end maxsize",
        "use pass_busbw_gb_s": "busbw minbusbw threshold passbusbw expectedbusbw",
        "remove it: sizes double from min_bytes to max_bytes": "f factor stepfactor",
    },
    "token_secret": {
        "use token_secret: the name of a Kubernetes Secret": "token hftoken secret",
        "use model: OWNER/NAME": "repo repoid modelid hfmodel modelname",
        "use directory": "target output outputdir localdir destination path",
        "remove it: what the hub has that day comes, and is noted beside the files": (
            "revision branch commit"
        ),
        "remove it: data come by data_repositories of the cluster file, or in training jobs": (
            "dataset data"
        ),
    },
    "output_prefix": {
        "use input: [/shared/a.jsonl]": "inputs inputfile inputpath",
        "use output_prefix": "output outputdir outputpath",
        "use json_keys: [text]": "jsonkey textcolumn textkey",
        "use tokenizer: a folder with a Hugging Face tokenizer": _TOKENIZERS,
        "use shards: pods that share the work": "workers numworkers partitions nodes numnodes",
    },
}
