"""What stands in a job file for keys of PyTorchJobs and of other programs about nodes and files.

Sources: training-operator's PyTorchJob; transformers' TrainingArguments; Megatron-LM's arguments;
NeMo's megatron_gpt_config.yaml; DeepSpeed's configuration; axolotl's; nccl-tests' README.
"""

from megatron_eks.config.foreign_training_keys import ADAPTERS
from megatron_eks.config.slips import same

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


# By a key that tells the block.
OF_JOBS: dict[str, dict[str, str]] = {
    "kind": {
        **same(_POD, _POD_KEYS),
        "namespace": "remove it: platform.namespace of the cluster file says it",
        **same(_ZERO, "deepspeed deepspeedconfig fsdp fsdpconfig zerooptimization zerostage"),
        **ADAPTERS,
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
