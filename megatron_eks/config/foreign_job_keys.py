"""What stands in a job file for keys of PyTorchJobs, Hugging Face, NeMo and Megatron.

Sources: training-operator's PyTorchJob; transformers' TrainingArguments and LlamaConfig;
Megatron-LM's arguments; NeMo's megatron_gpt_config.yaml; DeepSpeed's configuration; axolotl's.
"""


def same(remedy: str, keys: str) -> dict[str, str]:
    """Give each of some keys, without signs between their words, the same remedy."""
    return dict.fromkeys(keys.split(), remedy)


_POD = "remove it: pool says which nodes, and the plan writes the pod"
_SHARE = "remove it: CPU, memory, /dev/shm and EFA interfaces follow from gpus_per_node"
_PROGRAM = "remove it: kind says which program runs"
_TOKENS = "use train_iters: tokens / (global_batch_size x sequence_length)"
_TOKENIZER = "use tokenizer: a folder with a Hugging Face tokenizer"
_TOKENIZERS = "tokenizertype tokenizermodel tokenizernameorpath tokenizerpath vocabfile mergefile"

_ZERO = "remove it: parallelism.distributed_optimizer is ZeRO's first stage; kind: fsdp shards all"
_ADAPTERS = "remove it: jobs train all weights of a model, and no adapters"
_ADAPTER_KEYS = "adapter lora loraalpha loradropout loramodeldir lorar lorarank peft qlora"
_BASE = "use model: the name of a preset, and checkpoint.pretrained for its weights"
_BASES = "basemodel hfmodel modelname modelnameorpath pretrainedmodelnameorpath"

_RESTARTS = "backofflimit maxrestarts restarts restartpolicy"
_KEPT = "ttl ttlsecondsafterfinished"
_POD_KEYS = "affinity nodeselector tolerations volumemounts volumes securitycontext"
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
_ENV = "environment envs envvars environmentvariables variables"
_GPUS = "gpus gpucount numgpus nprocpernode nproc gpusperworker"
_STEPS = "steps numsteps trainsteps maxiters iterations"


# By a key that tells the block.
OF_JOBS: dict[str, dict[str, str]] = {
    "kind": {
        **same(_POD, _POD_KEYS),
        "namespace": "remove it: platform.namespace of the cluster file says it",
        **same(_ZERO, "deepspeed deepspeedconfig fsdp fsdpconfig zerooptimization zerostage"),
        **same(_ADAPTERS, _ADAPTER_KEYS),
        **same(_BASE, _BASES),
        **same("remove it: kind and parallelism say how a run is divided", "strategy accelerator"),
        **same("remove it: jobs of this kind train all weights", "finetuningtype stage template"),
        **same(
            "use extra_args: TensorBoard is always written to, and --wandb-project asks for W&B",
            "reportto loggers",
        ),
        **same(
            "remove it: no secret stands in a file; a fetch job takes token_secret",
            "hftoken huggingfacetoken token",
        ),
        "trainer": "use nodes, gpus_per_node and training, which NeMo's trainer has together",
        "expmanager": "use checkpoint, which NeMo's exp_manager is about",
        "optim": "use training: learning_rate, weight_decay, adam_beta1 and adam_beta2",
        **same("use runtime.gang_restarts", _RESTARTS),
        **same("use runtime.keep_days", _KEPT),
        **same("use runtime.priority_class", "priority priorityclassname"),
        **same("use runtime.env: names and values", _ENV),
        **same("remove it: pool says on which nodes it runs", "cluster instancetype"),
        **same("remove it, with what is below: name and nodes stand at the top", "metadata spec"),
    },
    "gpus_per_node": {
        **same(
            "use gpus_per_node, or leave it out: the default is all GPUs of the instance type",
            _GPUS,
        ),
        **same(
            "use nodes: each runs one pod, with one process for each of its GPUs",
            "replicas numnodes nnodes workers workerreplicas",
        ),
        **same(_SHARE, "resources limits cpu memory efa shmsize"),
        **same(_PROGRAM, "command args script entrypoint"),
    },
    "shm_gib": {
        **same("use shm_gib, the number alone", "shm shmsize devshm"),
        **same(
            "use distributed_timeout_minutes",
            "timeout ddptimeout nccltimeout timeoutminutes distributedtimeout",
        ),
        **same("use gang_restarts", _RESTARTS),
        **same("use keep_days", _KEPT),
        **same("use priority_class", "priority priorityclassname"),
        "rdzvbackend": "use rendezvous",
        **same("use env: names and values", _ENV),
        **same("use gpus_per_node, at the top of the file", _GPUS),
        **same(_SHARE, "resources limits requests cpu memory efa hugepages"),
        **same("remove it: torchrun and the operator set it", "rdzvendpoint masteraddr masterport"),
        **same(_POD, _POD_KEYS),
        **same(_PROGRAM, "command args script entrypoint"),
    },
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
        **same(_ADAPTERS, _ADAPTER_KEYS),
        **same(
            "use global_batch_size: micro_batch_size x data parallel size x this number",
            "gradientaccumulationsteps gradaccum accumulategradbatches nummicrobatches",
        ),
        **same(
            "use recompute: full or selective",
            "activationcheckpointing gradientcheckpointing recomputegranularity",
        ),
        "recomputenumlayers": "use recompute_layers",
        **same("use extra_args: [--adam-eps, 1e-8]", "adameps adamepsilon"),
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
    # Of Megatron, and of FSDP and DDP.
    "split": {
        **same(
            "use prefix, without .bin and .idx; or blend for several corpora",
            "datapath dataprefix path paths dataset traindata traindatapath",
        ),
        **same(_TOKENIZER, _TOKENIZERS),
        **same("use cache_dir", "cache datacachepath indexcachedir indexmappingdir"),
        **same("use split: [98, 2, 0]", "splits splitsstring trainsplit"),
        "weights": "use blend: [{weight: 0.7, prefix: ...}, ...]",
        **same("use training.sequence_length", "seqlength seqlen"),
        "shuffle": "remove it: Megatron shuffles, by training.seed",
    },
    "configuration": {
        **same("use dataset", "datapath path name datasetname datasetnameorpath traindata"),
        "prefix": "use dataset, which takes the prefix of an indexed data set too",
        "blend": "remove it: dataset is one corpus here; kind: megatron blends",
        **same("use configuration", "datasetconfig datasetconfigname subset"),
        **same("use tokenizer: a folder, or a name of Hugging Face", _TOKENIZERS),
        **same("use training.sequence_length", "seqlength seqlen"),
    },
    "keep_last": {
        **same("use directory", "dir path save savedir outputdir"),
        "load": "use directory, which a run goes on from; pretrained are weights to start from",
        **same("use interval", "saveinterval savesteps saveevery everynsteps every frequency"),
        **same("use keep_last", "savetotallimit keep keepn maxtokeep savetopk"),
        **same(
            "remove it: a run goes on from the last checkpoint in directory by itself",
            "resume resumefromcheckpoint resumeifexists autoresume",
        ),
        **same(
            "use pretrained: weights to start from while directory is empty",
            "finetune noloadoptim basemodel pretrainedcheckpoint pretrainedpath loadpath initfrom",
        ),
        **same("use s3_uri", "s3 s3path s3prefix s3bucket upload uploadto remote"),
    },
    "pass_busbw_gb_s": {
        **same("remove it: each GPU of each node has a rank", "np ranks processes ntasks"),
        **same("use min_bytes, a number of bytes", "b begin minsize"),
        **same("use max_bytes, a number of bytes", "e end maxsize"),
        **same("use pass_busbw_gb_s", "busbw minbusbw threshold passbusbw expectedbusbw"),
        **same("remove it: sizes double from min_bytes to max_bytes", "f factor stepfactor"),
    },
    "token_secret": {
        **same("use token_secret: the name of a Kubernetes Secret", "token hftoken secret"),
        **same("use model: OWNER/NAME", "repo repoid modelid hfmodel modelname"),
        **same("use directory", "target output outputdir localdir destination path"),
        **same(
            "remove it: what the hub has that day comes, and is noted beside the files",
            "revision branch commit",
        ),
        **same(
            "remove it: data come by data_repositories of the cluster file, or in training jobs",
            "dataset data",
        ),
    },
    "output_prefix": {
        **same("use input: [/shared/a.jsonl]", "inputs inputfile inputpath"),
        **same("use output_prefix", "output outputdir outputpath"),
        **same("use json_keys: [text]", "jsonkey textcolumn textkey"),
        **same("use tokenizer: a folder with a Hugging Face tokenizer", _TOKENIZERS),
        **same(
            "use shards: pods that share the work", "workers numworkers partitions nodes numnodes"
        ),
    },
}
