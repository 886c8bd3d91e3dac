"""The names whose values a support bundle shows: all others are people's own, or of other programs.

Everything here is rendered by this project, or set by Kubernetes, EKS or the training operator on
what is rendered; `tests/ops/test_shown_names.py` compares it with all manifests. What a job file
adds (`runtime.env`, `extra_args`, `overrides`) is never on it.
"""

import re

from megatron_eks.catalog.environment import POLICIES, Verdict

_ENVIRONMENT = """
    AWS_CA_BUNDLE CURL_CA_BUNDLE REQUESTS_CA_BUNDLE SSL_CERT_FILE HF_TOKEN_PATH
    HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy
    NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES FAIL_ON_INIT_ERROR MOFED_ENABLED
    DCGM_EXPORTER_KUBERNETES DCGM_EXPORTER_LISTEN NODE_NAME MY_POD_NAMESPACE
    MASTER_ADDR MASTER_PORT WORLD_SIZE RANK LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK
    JOB_COMPLETION_INDEX PYTHONUNBUFFERED
    PET_MASTER_ADDR PET_MASTER_PORT PET_NNODES PET_NODE_RANK PET_NPROC_PER_NODE PET_MAX_RESTARTS
    PET_RDZV_BACKEND PET_RDZV_ENDPOINT PET_RDZV_ID PET_RDZV_CONF
    TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RESTART_COUNT TORCHELASTIC_RUN_ID
    AWS_REGION AWS_DEFAULT_REGION AWS_STS_REGIONAL_ENDPOINTS
    AWS_CONTAINER_CREDENTIALS_FULL_URI AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE
    KUBERNETES_SERVICE_HOST KUBERNETES_SERVICE_PORT
"""
ENVIRONMENT = frozenset(_ENVIRONMENT.split()) | frozenset(
    name for name, policy in POLICIES.items() if policy.verdict is Verdict.SET
)
"""Variables of the plan; then of the charts, the operator and torchrun, EKS, and Kubernetes."""

_LABELS = """
    app role k8s-app app.kubernetes.io/name
    megatron-eks/cluster megatron-eks/job megatron-eks/pool localcloud/simulated
    pod-security.kubernetes.io/audit pod-security.kubernetes.io/audit-version
    pod-security.kubernetes.io/enforce pod-security.kubernetes.io/enforce-version
    pod-security.kubernetes.io/warn pod-security.kubernetes.io/warn-version
    nvidia.com/gpu nvidia.com/gpu.present vpc.amazonaws.com/efa.present
    training.kubeflow.org/job-name training.kubeflow.org/job-role
    training.kubeflow.org/operator-name training.kubeflow.org/replica-index
    training.kubeflow.org/replica-type
    jobset.sigs.k8s.io/global-replicas jobset.sigs.k8s.io/group-name
    jobset.sigs.k8s.io/group-replicas jobset.sigs.k8s.io/job-global-index
    jobset.sigs.k8s.io/job-group-index jobset.sigs.k8s.io/job-index jobset.sigs.k8s.io/job-key
    jobset.sigs.k8s.io/jobset-name jobset.sigs.k8s.io/jobset-uid
    jobset.sigs.k8s.io/replicatedjob-name jobset.sigs.k8s.io/replicatedjob-replicas
    jobset.sigs.k8s.io/restart-attempt
    batch.kubernetes.io/controller-uid batch.kubernetes.io/job-completion-index
    batch.kubernetes.io/job-name controller-uid job-name
    apps.kubernetes.io/pod-index controller-revision-hash pod-template-generation
    pod-template-hash
    kubernetes.io/arch kubernetes.io/hostname kubernetes.io/metadata.name kubernetes.io/os
    node.kubernetes.io/instance-type node.kubernetes.io/not-ready node.kubernetes.io/unreachable
    node.kubernetes.io/unschedulable
    topology.kubernetes.io/region topology.kubernetes.io/zone topology.k8s.aws/zone-id
    topology.k8s.aws/network-node-layer-1 topology.k8s.aws/network-node-layer-2
    topology.k8s.aws/network-node-layer-3
    eks.amazonaws.com/capacityType eks.amazonaws.com/nodegroup eks.amazonaws.com/nodegroup-image
"""
LABELS = frozenset(_LABELS.split())
"""Labels, and keys of taints."""

_ANNOTATIONS = """
    megatron-eks/cluster megatron-eks/job megatron-eks/preview megatron-eks/spec-hash
    megatron-eks/template prometheus.io/path prometheus.io/port prometheus.io/scrape
    batch.kubernetes.io/job-completion-index batch.kubernetes.io/job-tracking
    deployment.kubernetes.io/revision deprecated.daemonset.template.generation
    pv.kubernetes.io/bind-completed pv.kubernetes.io/bound-by-controller
    pv.kubernetes.io/provisioned-by
"""
ANNOTATIONS = frozenset(_ANNOTATIONS.split())

FILES = frozenset(f"train_{kind}.json" for kind in ("bridge", "ddp", "fsdp")) | {
    "counters.csv",
    "initContainer.yaml",
    "job_objects.py",
}
"""Keys of ConfigMaps; of a job's configuration what people set freely is left out again."""

VOLUME_ATTRIBUTES = frozenset({"dnsname", "mountname"})

OUTPUTS = re.compile(
    r"(Megatron|Fsdp)(Image|BuildProject)|Lustre(Id|DnsName|MountName)\w{0,9}|EfsId|EfsAccessPointId"
    r"|BastionId|BucketName|JobRoleArn|TrainingOperator|Jobset|Cuda|Etcd|AwsEfaK8sDevicePlugin"
)
"""Keys of `outputs.json`."""

_FLAGS = """
    add-bos all append-eod async-save bf16 ckpt-assume-constant-structure ckpt-fully-parallel-load
    cross-entropy-loss-fusion disable-bias-linear dry-run exit-signal-handler expect-gpu-direct
    group-query-attention log-memory-to-tensorboard log-throughput log-timers-to-tensorboard
    manual-gc moe-grouped-gemm moe-router-pre-softmax multi-latent-attention
    no-create-attention-mask-in-dataloader overlap-grad-reduce overlap-param-gather
    override-opt_param-scheduler resume sequence-parallel swiglu
    untie-embeddings-and-output-weights use-distributed-optimizer
    use-mcore-models use-persistent-ckpt-worker use-rope-scaling verify
"""
FLAGS = frozenset(f"--{name}" for name in _FLAGS.split())
_OPTIONS = """
    adam-beta1 adam-beta2 attention-backend attention-dropout ckpt-format clip-grad
    context-parallel-size cross-entropy-fusion-impl data-cache-path data-path
    device distributed-timeout-minutes eval-interval eval-iters expert-model-parallel-size
    expert-tensor-parallel-size ffn-hidden-size fp8-format global-batch-size hidden-dropout
    hidden-size init-method-std kv-channels kv-lora-rank load log-interval lr lr-decay-iters
    lr-decay-style lr-warmup-iters lr-wsd-decay-iters manual-gc-interval max-position-embeddings
    micro-batch-size min-lr moe-aux-loss-coeff moe-ffn-hidden-size moe-layer-freq
    moe-router-load-balancing-type moe-router-topk moe-shared-expert-intermediate-size
    moe-token-dispatcher-type norm-epsilon normalization num-attention-heads num-experts num-layers
    num-query-groups num-virtual-stages-per-pipeline-rank num-workers pipeline-model-parallel-size
    position-embedding-type pretrained-checkpoint q-lora-rank qk-head-dim qk-pos-emb-head-dim
    recompute-granularity recompute-method recompute-modules recompute-num-layers
    rope-scaling-factor rotary-base rotary-percent save save-interval seed seq-length split
    tensor-model-parallel-size tensorboard-dir tokenizer-model tokenizer-type train-iters
    transformer-impl v-head-dim weight-decay
    config direction directory expect expect-efa heartbeats input json-key keep-last
    max-bytes min-bytes model on-bad-line output-prefix pass-busbw-gb-s pass-mb-s recipe s3-uri
    shards source target token-file tokenizer workers
    master-addr master-port nnodes node-rank nproc-per-node
    advertise-client-urls controller-threads data-dir enable-scheme enable-v2 jobs kube-api-burst
    kube-api-qps leader-elect listen-client-urls metrics-bind-address name namespace
    pytorch-init-container-image pytorch-init-container-max-tries volumes zap-devel
"""
OPTIONS = frozenset(f"--{name}" for name in _OPTIONS.split())
"""Options with a value: of Megatron-LM, our programs, torchrun, the operator and etcd."""

LISTS = frozenset({"--data-path", "--input", "--json-key", "--recompute-modules"})
"""Options with any number of values."""

WORDS = re.compile(
    r"--|-|sh|-euc|-f|-m|etcd|nvidia-device-plugin|nvidia-smi|python3|torchrun|shared-directories"
    r"|take|pass|make|\d{1,3}"
    r"|/etc/dcgm-exporter/[\w./-]+|/opt/job-records/\w+\.py|megatron_eks\.programs\.\w+"
)
"""Programs that are started, and what stands between their arguments."""

_FIELDS = """
    accessModes action add address addressType admissionReviewVersions apiGroup apiGroups
    apiVersion apiVersions architecture bootID buildDate cidr claimName cleanPodPolicy clusterIP
    clusterIPs compiler completedIndexes completionMode completionTime component
    concurrencyPolicy containerID containerName containerRuntimeVersion controllerName
    creationTimestamp deletionTimestamp dnsPolicy driver drop effect emulationMajor
    emulationMinor eventTime except externalTrafficPolicy failedIndexes failurePolicy fieldPath
    finalizers finishedAt firstTimestamp fsGroupPolicy fsType generateName gitCommit
    gitTreeState gitVersion goVersion handler host hostIP hostIPs hostNetwork image imageID
    imagePullPolicy internalTrafficPolicy ip ipFamilies ipFamilyPolicy kernelVersion key kind
    kubeletVersion kubeProxyVersion labelSelector lastHeartbeatTime lastObservedTime
    lastProbeTime lastTimestamp lastTransitionTime lastUpdateTime lifecycleModes machineID major
    managedBy medium message minCompatibilityMajor minCompatibilityMinor minor mode mountOptions
    mountPath name names namespace nodeID nodeName nominatedNodeName note nprocPerNode
    onJobFailureMessagePatterns onJobFailureReasons
    operatingSystem operations operator osImage path persistentVolumeReclaimPolicy phase
    platform podCIDR podCIDRs podIP podIPs podManagementPolicy podReplacementPolicy policy
    policyTypes port preemptionPolicy priorityClassName propagationPolicy protocol providerID
    provisioner qosClass rdzvBackend rdzvHost rdzvId reason reclaimPolicy reportingComponent
    reportingController reportingInstance resource resources resourceVersion restartPolicy
    restartStrategy roleRef schedulerName scheme scopeName scopes secretName serviceAccount
    serviceAccountName
    serviceName sessionAffinity sizeLimit startedAt startTime state status storageClassName
    subdomain supplementalGroupsPolicy systemUUID targetPort terminationMessagePath
    terminationMessagePolicy terminalState topologyKey type uid verbs volumeBindingMode volumeHandle
    volumeMode volumeName volumesAttached volumesInUse whenUnsatisfiable
"""
FIELDS = frozenset(_FIELDS.split())
"""Fields of Kubernetes' objects whose text names or describes, and is no value of a person."""
