"""Findings: every problem the project can report, each with a stable code."""

from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum, unique
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Path = tuple[str | int, ...]


class Level(StrEnum):
    """How much a finding weighs: an error stops everything that would act on the file.

    What somebody allows, with a reason, weighs nothing and stays in sight.
    """

    ERROR = "error"
    WARNING = "warning"
    ALLOWED = "allowed"


@unique
class Code(StrEnum):
    """Stable numbers: never reused, never renumbered; a hundred for each part of the project."""

    # Files and YAML
    FILE_UNREADABLE = "MEKS-0001"
    YAML_SYNTAX = "MEKS-0002"
    DUPLICATE_KEY = "MEKS-0003"
    NOT_A_MAPPING = "MEKS-0004"
    TOO_LARGE = "MEKS-0005"
    NOTHING_TO_CHECK = "MEKS-0006"
    OUTPUTS_OF_ANOTHER_CLUSTER = "MEKS-0007"
    OUTPUTS_MALFORMED = "MEKS-0008"
    PREVIEW = "MEKS-0009"
    # Shape of a configuration file
    UNKNOWN_KEY = "MEKS-0101"
    MISSING_KEY = "MEKS-0102"
    WRONG_TYPE = "MEKS-0103"
    UNQUOTED = "MEKS-0104"
    NOT_ALLOWED = "MEKS-0105"
    OUT_OF_RANGE = "MEKS-0106"
    BAD_FORMAT = "MEKS-0107"
    NOT_SUPPORTED_YET = "MEKS-0108"
    # Cluster file
    UNKNOWN_INSTANCE_TYPE = "MEKS-0201"
    ZONE_NOT_IN_REGION = "MEKS-0202"
    ZONE_NOT_LISTED = "MEKS-0203"
    DUPLICATE_NAME = "MEKS-0204"
    PUBLIC_ACCESS_TOO_WIDE = "MEKS-0205"
    NO_WAY_IN = "MEKS-0206"
    CIDR = "MEKS-0207"
    CIDR_OVERLAP = "MEKS-0208"
    SUBNET_TOO_SMALL = "MEKS-0209"
    LUSTRE_CAPACITY = "MEKS-0210"
    DOCUMENTATION_VALUE = "MEKS-0212"
    KUBERNETES_SUPPORT_ENDS = "MEKS-0213"
    TOO_FEW_ZONES = "MEKS-0214"
    RESERVED_LABEL = "MEKS-0215"
    UNPINNED_VERSION = "MEKS-0216"
    TAG = "MEKS-0217"
    AMI_RELEASE = "MEKS-0218"
    MOUNT_PATH = "MEKS-0219"
    POOLS_ACROSS_ZONES = "MEKS-0220"
    NAMESPACE = "MEKS-0221"
    UNKNOWN_REGION = "MEKS-0222"
    PARTITION = "MEKS-0223"
    REFUSED_INSTANCE_TYPE = "MEKS-0224"
    CAPACITY_BLOCK_WINDOW = "MEKS-0225"
    CAPACITY_BLOCK_TYPE = "MEKS-0226"
    PLACEMENT_GROUP = "MEKS-0227"
    SHARED_RESERVATION = "MEKS-0228"
    TOO_MANY_POOLS = "MEKS-0229"
    UNKNOWN_FACT = "MEKS-0230"
    SPOT_GANG = "MEKS-0231"
    TENSOR_PARALLEL_OVER_PCIE = "MEKS-0232"
    EXISTING_VPC = "MEKS-0240"
    SUBNET_MISSING = "MEKS-0241"
    VPC_RANGE_UNKNOWN = "MEKS-0242"
    EXISTING_CLUSTER = "MEKS-0243"
    NO_WAY_OUT = "MEKS-0244"
    PROXY = "MEKS-0245"
    CA_BUNDLE = "MEKS-0246"
    LUSTRE_SCRATCH = "MEKS-0247"
    LUSTRE_EFA = "MEKS-0248"
    LUSTRE_EXISTING = "MEKS-0249"
    LUSTRE_REPOSITORY = "MEKS-0250"
    LUSTRE_PER_ZONE = "MEKS-0251"
    ANOTHER_REGION = "MEKS-0252"
    UNKNOWN_ZONE = "MEKS-0273"
    TOO_MANY_RANGES = "MEKS-0274"
    ROLE = "MEKS-0275"
    BUCKET_NAME = "MEKS-0276"
    BUILD_ARGUMENT = "MEKS-0277"
    IMAGE_SOURCE = "MEKS-0278"
    ANOTHER_ACCOUNT = "MEKS-0279"
    # Job file
    UNKNOWN_POOL = "MEKS-0301"
    TOO_MANY_NODES = "MEKS-0302"
    GPUS_PER_NODE = "MEKS-0303"
    UNKNOWN_IMAGE = "MEKS-0304"
    UNKNOWN_MODEL = "MEKS-0305"
    LAYOUT_WORLD = "MEKS-0306"
    LAYOUT_HEADS = "MEKS-0307"
    LAYOUT_LAYERS = "MEKS-0308"
    LAYOUT_BATCH = "MEKS-0309"
    LAYOUT_SEQUENCE = "MEKS-0310"
    TENSOR_PARALLEL_ACROSS_NODES = "MEKS-0311"
    DOES_NOT_FIT = "MEKS-0312"
    FITS_TIGHTLY = "MEKS-0313"
    PRECISION = "MEKS-0314"
    RECOMPUTE = "MEKS-0315"
    SCHEDULE = "MEKS-0316"
    SHARED_PATH = "MEKS-0317"
    SHM = "MEKS-0318"
    POD_SECURITY = "MEKS-0319"
    NAME_TOO_LONG = "MEKS-0320"
    ENVIRONMENT_REFUSED = "MEKS-0321"
    ENVIRONMENT_ADVISED_AGAINST = "MEKS-0322"
    ENVIRONMENT_NO_EFFECT = "MEKS-0323"
    CHECKPOINTS_FILL_DISK = "MEKS-0324"
    DATA_SOURCE = "MEKS-0325"
    SEQUENCE_PARALLEL = "MEKS-0326"
    DUPLICATE_JOB = "MEKS-0327"
    DATA_SPLIT = "MEKS-0329"
    SHARED_CHECKPOINTS = "MEKS-0330"
    LAYOUT_EXPERTS = "MEKS-0331"
    EXTRA_ARGUMENT = "MEKS-0332"
    RENDEZVOUS = "MEKS-0333"
    WEIGHTS = "MEKS-0334"
    FETCH_SOURCE = "MEKS-0335"
    TASK_MEMORY = "MEKS-0336"
    GATED = "MEKS-0337"
    MESSAGE_SIZES = "MEKS-0338"
    NO_MEANING = "MEKS-0339"
    PRIORITY_CLASS = "MEKS-0340"
    S3_URI = "MEKS-0370"
    SHARED_S3_CHECKPOINTS = "MEKS-0371"
    S3_POLICY_TOO_LONG = "MEKS-0372"
    SAVE_TIME = "MEKS-0375"
    RETENTION = "MEKS-0376"
    DATA_WORKERS = "MEKS-0377"
    RECIPE = "MEKS-0378"
    CHECKPOINTS_TOGETHER = "MEKS-0379"
    OPTIMIZER = "MEKS-0380"
    OPTION_COMBINATION = "MEKS-0381"
    BLOCK_ENDS_FIRST = "MEKS-0382"
    EVALUATION = "MEKS-0383"
    OVERRIDE = "MEKS-0384"
    SAME_OUTPUT = "MEKS-0385"
    LAUNCHER = "MEKS-0386"
    # Rules over templates
    EFA_INTERFACES = "MEKS-0501"
    EFA_SELF_RULES = "MEKS-0502"
    LUSTRE_PORTS = "MEKS-0503"
    NODE_METADATA = "MEKS-0504"
    NODE_GROUP_SIZE = "MEKS-0505"
    INTERFACES_AND_GROUPS = "MEKS-0506"
    LUSTRE_RETAINED = "MEKS-0507"
    CAPACITY_RESERVATION = "MEKS-0508"
    AMI_TYPE = "MEKS-0509"
    ENDPOINT_OPEN = "MEKS-0510"
    LUSTRE_SETTINGS = "MEKS-0511"
    MANAGED_NODES = "MEKS-0512"
    NODE_GROUP_SUBNETS = "MEKS-0513"
    PUBLIC_ADDRESS = "MEKS-0514"
    INSTANCE_TYPE_NAME = "MEKS-0515"
    CLUSTER_VERSION = "MEKS-0516"
    ADDON_NAME = "MEKS-0517"
    PROTOCOL_NAME = "MEKS-0518"
    DATA_REPOSITORY = "MEKS-0519"
    MAX_PODS = "MEKS-0520"
    POD_ROLE = "MEKS-0535"
    BUILD_COMPUTE = "MEKS-0540"
    ROLE_TRUST = "MEKS-0541"
    NODE_ROLE = "MEKS-0542"
    USER_DATA = "MEKS-0543"
    ROOT_VOLUME = "MEKS-0544"
    SUBNETS = "MEKS-0545"
    PLACEMENT = "MEKS-0546"
    ADDON_SETTINGS = "MEKS-0547"
    CLUSTER_CONTROL = "MEKS-0548"
    OPEN_TO_ALL = "MEKS-0549"
    ENCRYPTION = "MEKS-0551"
    PROPERTY = "MEKS-0560"
    REFERENCE = "MEKS-0561"
    FUNCTION = "MEKS-0562"
    POLICY = "MEKS-0563"
    RANGE = "MEKS-0564"
    NETWORK_PART = "MEKS-0565"
    GROUP_RULE = "MEKS-0566"
    CLUSTER_GROUP = "MEKS-0567"
    ARN = "MEKS-0568"
    UNKNOWN_VALUE = "MEKS-0570"
    ACCESS_ENTRY = "MEKS-0571"
    ENDPOINT_NAME = "MEKS-0572"
    TEMPLATE_SECRET = "MEKS-0573"  # noqa: S105 -- the number of a finding
    # Rules over manifests
    CONTAINER_NAME = "MEKS-0601"
    RENDEZVOUS_FLAG = "MEKS-0602"
    REFUSED_VARIABLE = "MEKS-0603"
    EXTENDED_RESOURCES = "MEKS-0604"
    TMPFS_ABOVE_MEMORY = "MEKS-0605"
    REPLICAS_DIFFER = "MEKS-0606"
    MASTER_REPLICAS = "MEKS-0607"
    PROCESSES_PER_NODE = "MEKS-0608"
    UNPINNED_IMAGE = "MEKS-0609"
    CLEAN_POD_POLICY = "MEKS-0610"
    BAD_QUANTITY = "MEKS-0611"
    REQUEST_ABOVE_LIMIT = "MEKS-0612"
    EFA_NOT_REQUESTED = "MEKS-0613"
    SECRET_IN_MANIFEST = "MEKS-0614"  # noqa: S105 -- the number of a finding
    HOST_NETWORK_DNS = "MEKS-0615"
    DUPLICATE_VARIABLE = "MEKS-0616"
    JOB_NAME = "MEKS-0617"
    VARIABLE_ADVISED_AGAINST = "MEKS-0618"
    RESTART_POLICY = "MEKS-0619"
    NOT_AN_OBJECT = "MEKS-0620"
    POD_LABEL = "MEKS-0640"
    UNKNOWN_VOLUME = "MEKS-0641"
    REFUSED_IN_POD = "MEKS-0642"
    UNKNOWN_RESOURCE = "MEKS-0643"
    NOT_A_TEXT = "MEKS-0650"
    DUPLICATE_IN_POD = "MEKS-0651"
    UNKNOWN_POD_KEY = "MEKS-0652"
    SELECTOR = "MEKS-0653"
    MISSING_OBJECT = "MEKS-0654"
    CLAIM_AND_VOLUME = "MEKS-0655"
    ABOVE_QUOTA = "MEKS-0656"
    POD_ABOVE_NAMESPACE = "MEKS-0657"
    RANKS_CUT_OFF = "MEKS-0658"
    SERVICE = "MEKS-0659"
    API_VERSION = "MEKS-0660"
    TOLERATION = "MEKS-0661"
    JOB_FIELDS = "MEKS-0662"
    SHARED_MEMORY = "MEKS-0663"
    NEEDLESS_PRIVILEGE = "MEKS-0664"
    DUPLICATE_OBJECT = "MEKS-0665"
    FILE_OWNERS = "MEKS-0666"
    BROAD_RIGHTS = "MEKS-0667"
    WRONG_VALUE = "MEKS-0670"
    MISSING_FIELD = "MEKS-0671"
    PROBE = "MEKS-0672"
    QUOTA_NAME = "MEKS-0673"
    TRAINING_FLAG = "MEKS-0674"
    LOST_OUTPUT = "MEKS-0675"
    VARIABLE_MISSING = "MEKS-0680"
    NODE_SELECTOR = "MEKS-0681"
    UNTOLERATED = "MEKS-0682"
    NODE_ROOM = "MEKS-0683"
    NODES_ENOUGH = "MEKS-0684"
    SELECTS_NOTHING = "MEKS-0685"
    LIMIT_RANGE = "MEKS-0686"
    # Dockerfiles, and what is allowed on purpose
    IMAGE_VARIABLE = "MEKS-0700"
    IMAGE_VARIABLE_ADVISED_AGAINST = "MEKS-0701"
    IMAGE_SECRET = "MEKS-0702"  # noqa: S105 -- the number of a finding
    IMAGE_BASE = "MEKS-0703"
    SUPPRESSION = "MEKS-0710"
    # Commands that talk to Kubernetes
    KUBERNETES_NOT_REACHABLE = "MEKS-0720"
    KUBERNETES_REFUSED = "MEKS-0721"
    KUBECONFIG = "MEKS-0722"
    OTHER_KUBERNETES = "MEKS-0723"
    OWNED_BY_ANOTHER = "MEKS-0724"
    PREVIEW_REFUSED = "MEKS-0725"
    NOT_SYNTHESISED = "MEKS-0726"
    NOT_READY = "MEKS-0727"
    JOB_DIFFERS = "MEKS-0728"
    JOB_NOT_FOUND = "MEKS-0729"
    PLATFORM_MISSING = "MEKS-0730"
    BAD_SET_OPTION = "MEKS-0731"
    PODS_REMAIN = "MEKS-0733"
    NO_LOGS = "MEKS-0734"
    # Commands that act on AWS
    CREDENTIALS = "MEKS-0740"
    ACCESS_DENIED = "MEKS-0741"
    AWS_NOT_REACHABLE = "MEKS-0742"
    THROTTLED = "MEKS-0743"
    AWS_REFUSED = "MEKS-0744"
    REGION_DIFFERS = "MEKS-0745"
    NOT_DEPLOYED = "MEKS-0746"
    NEEDS_ANSWER = "MEKS-0747"
    FILE_EXISTS = "MEKS-0748"
    CDK_FAILED = "MEKS-0749"
    STACK_FAILED = "MEKS-0750"
    NODES_IN_USE = "MEKS-0751"
    WANTED_SIZE_CHANGED = "MEKS-0752"
    DATA_REPLACED = "MEKS-0753"
    BUILD_FAILED = "MEKS-0754"
    NO_CAPACITY = "MEKS-0755"
    NODE_COUNT = "MEKS-0756"
    JOBS_ON_POOL = "MEKS-0757"
    PROTECTED = "MEKS-0758"
    WAITED_TOO_LONG = "MEKS-0759"
    NO_ADMINISTRATOR = "MEKS-0760"


@dataclass(frozen=True)
class Finding:
    """One problem: where, what was found, and what to do next."""

    code: Code
    path: Path
    found: str
    remedy: str
    level: Level = Level.ERROR
    file: str = ""
    line: int = 0

    def at(self, file: str, line: int) -> "Finding":
        """Return the same finding placed in a file."""
        return replace(self, file=file, line=line)

    def __str__(self) -> str:
        """Return the one-line form of the error contract."""
        place = f"{self.file}:{self.line}" if self.line else self.file
        line = f"{self.level} {self.code} {place} {dotted(self.path)}: {self.found} - {self.remedy}"
        # A key or value may hold line ends and terminal codes; a finding stays one plain line.
        return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)

    def as_json(self) -> dict[str, str | int]:
        """Return the same as a flat mapping."""
        return {
            "level": str(self.level),
            "code": str(self.code),
            "file": self.file,
            "line": self.line,
            "path": dotted(self.path),
            "found": self.found,
            "remedy": self.remedy,
        }


class ConfigError(Exception):
    """A configuration cannot be used; carries every finding, warnings included."""

    def __init__(self, findings: "Iterable[Finding]") -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(str(finding) for finding in self.findings))


def dotted(path: Path) -> str:
    """Write a path as users read it: `gpu_pools[0].instance_type`; a dot for the whole file."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "."


def has_errors(findings: "Iterable[Finding]") -> bool:
    """Tell whether anything in the list forbids going on."""
    return any(finding.level is Level.ERROR for finding in findings)


def choices(value: str, known: "Iterable[str] | Mapping[str, object]") -> str:
    """Say what is allowed, the closest match first."""
    names = sorted(known)
    longer = [name for name in names if value and name.startswith(value)]
    close = longer or get_close_matches(value, names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}known: {', '.join(names)}"
