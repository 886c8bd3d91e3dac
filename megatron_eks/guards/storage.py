"""Guards of storage: FSx for Lustre, buckets, repositories of images, and keys."""

import re
from itertools import product

from megatron_eks.catalog import pins
from megatron_eks.guards.codes import Rule
from megatron_eks.guards.network import ALL_TRAFFIC, ANYBODY, NODES, SIDES, name_of, rules
from megatron_eks.guards.statements import Need, needs, statements, texts
from megatron_eks.guards.templates import Resource, Templates, constants, template_guard
from megatron_eks.guards.values import NO, YES, Found, Value, report, written

_THROUGHPUTS = (125, 250, 500, 1000)
# With EFA 38,400 GiB at 125 MB/s per TiB, and half of it at twice the throughput.
_EFA_GIB_TIMES_THROUGHPUT = 4_800_000
_AT_ONCE = (("BatchImportMetaDataOnCreate", (True,), "jobs see an empty directory at first"),)
_PORTS = frozenset({988, *range(1018, 1024)})
_BLOCKS = (ALL_TRAFFIC, frozenset({988}), _PORTS - {988})
_OPEN = "one slip in a policy opens data and checkpoints to everybody"
_PUBLIC = ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")
_CLOSED = tuple((f"PublicAccessBlockConfiguration {each}", (True,), _OPEN) for each in _PUBLIC)
_RULE = "BucketEncryption ServerSideEncryptionConfiguration 0 "
_ALGORITHM = f"{_RULE}ServerSideEncryptionByDefault SSEAlgorithm"
_ENCRYPTED = ((_ALGORITHM, ("aws:kms", "aws:kms:dsse", "AES256"), "nothing says how to encrypt"),)
_VERSIONS = (("VersioningConfiguration Status", ("Enabled",), "what is overwritten is lost"),)
_TLS = ("Bool", "aws:SecureTransport", "false"), ("NumericLessThan", "s3:TlsVersion", "1.2|1.3")
_KEPT = ("Retain", "RetainExceptOnCreate")
_POLICIES = ("DeletionPolicy", "UpdateReplacePolicy")
_CONTEXT = "kms:EncryptionContext:aws:logs:arn"
_LOG_USE = ("Decrypt", "DescribeKey", "Encrypt", "GenerateDataKey", "ReEncryptFrom", "ReEncryptTo")
_DOMAINS = ("amazonaws.com", "${AWS::URLSuffix}", "amazonaws.com.cn")
_OWNERS = "arn:${AWS::Partition}:iam::${AWS::AccountId}:root|${AWS::AccountId}"
_ROOT = Need(Rule.KEY_POLICY, "no role can use the key", ("kms:*",), ("*",), _OWNERS)
_DATA = ("FSx::FileSystem", "EFS::FileSystem", "S3::Bucket", "ECR::Repository")
_FIXED, _MOVABLE = "IMMUTABLE_WITH_EXCLUSION", "ImageTagMutabilityExclusionFilter"
_IMAGES = (
    ("ImageTagMutability", (_FIXED, "IMMUTABLE"), "a tag can move under a job that restarts"),
    (f"{_MOVABLE}s 0 {_MOVABLE}Value", ("latest", None), "a job restarts with another image"),
    ("EmptyOnDelete", (NO, None), "the images of running jobs go with the stack"),
    ("EncryptionConfiguration EncryptionType", ("KMS", "KMS_DSSE"), "it is not a key of yours"),
)
# CodeBuild, "Build environment compute modes and types": smaller ones have a disk of 64 GB.
_LARGE = ("BUILD_GENERAL1_LARGE", "BUILD_GENERAL1_XLARGE", "BUILD_GENERAL1_2XLARGE")
_BUILD = (
    ("Environment Type", ("LINUX_CONTAINER",), "it is no machine for images of GPU nodes"),
    ("Environment ComputeType", _LARGE, "its disk is full, or its time over, before the image is"),
    ("Environment PrivilegedMode", (YES,), "Docker does not start, and no image is built"),
    ("LogsConfig", (), "nobody reads why a build failed"),
    ("Source Type", ("S3", "GITHUB"), "it finds no source"),
    ("Source BuildSpec", (), "it builds something else, or nothing"),
    ("TimeoutInMinutes", (), "an image with CUDA code takes more than the usual hour"),
)
_HOMES = (
    ("PosixUser Uid", (), "pods write as different users, and cannot read each other's files"),
    ("RootDirectory Path", (), "jobs see the whole file system"),
    ("RootDirectory CreationInfo OwnerUid", (), "nobody makes the directory, and no pod mounts it"),
)


def _uses_efa(system: Resource) -> bool:
    return system["LustreConfiguration"]["EfaEnabled"].raw in (True, "true")


def _zone(subnet: Value, templates: Templates) -> str:
    target = templates.target(subnet)
    return templates.text(target["AvailabilityZone"] if target else subnet) or str(subnet.raw)


@template_guard
def lustre_settings(templates: Templates) -> Found:
    """Take what FSx takes together, in the zone of GPU nodes (FSx, CreateFileSystem)."""
    code, settings = Rule.LUSTRE_SETTINGS, "LustreConfiguration"
    groups, links = templates.of("EKS::Nodegroup"), templates.of("FSx::DataRepositoryAssociation")
    pools = [each for each in groups if each["Taints"] or "NVIDIA" in each["AmiType"].text]
    zones = {_zone(subnet, templates) for pool in pools for subnet in pool["Subnets"].listed}
    yield from constants(links, Rule.DATA_REPOSITORY, *_AT_ONCE, warns=True)
    for system in templates.of("FSx::FileSystem"):
        kind = system[settings]["DeploymentType"].text
        scratch, why = kind.startswith("SCRATCH"), f"FSx refuses it for {kind or 'this one'}"
        kinds, rates = ("PERSISTENT_2", "SCRATCH_2"), (None,) if scratch else _THROUGHPUTS
        modes = (None,) if scratch else ("AUTOMATIC", "USER_PROVISIONED")
        yield from constants(
            [system],
            code,
            (f"{settings} DeploymentType", kinds, "a scratch file system loses data with a server"),
            ("FileSystemType", ("LUSTRE",), "LustreConfiguration is for no other"),
            ("StorageType", ("SSD",), why),
            ("FileSystemTypeVersion", (pins.LUSTRE_VERSION,), "nodes of AL2023 cannot mount it"),
            (f"{settings} PerUnitStorageThroughput", rates, why),
            (f"{settings} EfaEnabled", (None, False, True)[: 2 if scratch else 3], why),
            (f"{settings} MetadataConfiguration Mode", modes, f"{why}, or EFA cannot be used"),
        )
        size, rate = system["StorageCapacity"], system[settings]["PerUnitStorageThroughput"]
        efa = _uses_efa(system) and rate.raw in _THROUGHPUTS
        step = _EFA_GIB_TIMES_THROUGHPUT // int(rate.number or 1) if efa else 2400
        fits = isinstance(size.raw, int) and size.raw > 0 and size.raw % step == 0
        wrong = not fits and (efa or size.raw != 1200)  # noqa: PLR2004 -- GiB
        found = f"StorageCapacity is {written(size.raw)}: FSx has no such size"
        yield from report(code, wrong, size, found, f"set it to a multiple of {step} GiB")
        subnets = system["SubnetIds"]
        remedy = "use one zone: a pool moves, but another subnet replaces the file system"
        own = [_zone(each, templates) for each in subnets.listed]
        if zones and (len(own) != 1 or own[0] not in zones):
            found = "not exactly one subnet, in a GPU pool's zone: reads and saves cross zones"
            yield subnets.finding(Rule.SUBNETS, found, remedy, warns=not _uses_efa(system))


@template_guard
def lustre_ports(templates: Templates) -> Found:
    """Open Lustre's ports both ways, for EFA all, before FSx tries them (FSx, "Access control")."""
    code, every = Rule.LUSTRE_PORTS, list(rules(templates))
    groups = {each.name: each for each in templates.of("EC2::SecurityGroup")}
    for system in templates.of("FSx::FileSystem"):
        own, efa, waits = system["SecurityGroupIds"], _uses_efa(system), system.body["DependsOn"]
        servers = {name_of(templates, each) for each in own.listed}
        near = [each for each in every if servers & {*each.way}]
        nodes = {e for rule in near for e in rule.way} - {*servers, *SIDES, ANYBODY, "None"}
        if not servers or any(map(NODES.fullmatch, groups.keys() - nodes)):
            found = "no security group that is open to the nodes' group: mounts hang"
            remedy = "name the file servers' group, and open TCP 988 and 1018-1023 to the nodes'"
            yield own.finding(code, found, remedy)
        if not servers <= groups.keys():
            continue  # another group that is not at hand may complete this one
        what, wanted = ("all traffic", ALL_TRAFFIC) if efa else ("TCP 988 and 1018-1023", _PORTS)
        lacking = set()
        ways = [*product(servers, SIDES, {*servers, *nodes}), *product(nodes, SIDES, servers)]
        # A group without a rule of its own lets everything out.
        free = {e for e in nodes if e not in groups or not groups[e]["SecurityGroupEgress"]}
        for way in (each for each in ways if each[0] not in free or each[1] == "Ingress"):
            either = (way, (*way[:2], "" if efa else ANYBODY))
            opened = [each.ports for each in every if each.way in either]
            lacking |= set() if wanted <= frozenset().union(*opened) else {way}
        for rule in near:
            body, name = rule.body, rule.resource.name
            if rule.ports not in _BLOCKS:
                found = f"it opens {body['IpProtocol'].raw} {body['FromPort'].raw} to "
                found += f"{body['ToPort'].raw}, not {what}: mounts hang, or too much is open"
                remedy, right = f"open {what}, and no more", rule.way not in lacking
                yield body.finding(code, found, remedy, warns=right)
            if name not in {*groups, *waits.texts} and rule.resource.file == system.file:
                found = f"it does not wait for {name}: FSx finds its ports closed, and fails"
                yield waits.finding(code, found, f"add {name} to DependsOn")
        lacking -= {each.way for each in near if each.ports not in _BLOCKS}
        for group, side, peer in sorted(lacking):
            found = f"{group} has no {side.lower()} rule for {what} with {peer}: mounts hang"
            place = groups[group][f"SecurityGroup{side}"] if group in groups else own
            yield place.finding(code, found, f"add an AWS::EC2::SecurityGroup{side} to {group}")


def data_buckets(templates: Templates) -> list[Resource]:
    """Return the buckets that are not there for the access logs of others."""
    buckets = templates.of("S3::Bucket")
    logs = [each["LoggingConfiguration"]["DestinationBucketName"] for each in buckets]
    targets = [templates.target(each) for each in logs]
    return [e for e, own in zip(buckets, targets, strict=True) if own or e not in targets]


def key_of(bucket: Resource) -> Value:
    """Return the key with which a bucket encrypts."""
    return bucket.properties.at(f"{_RULE}ServerSideEncryptionByDefault KMSMasterKeyID")


@template_guard
def closed_and_kept(templates: Templates) -> Found:
    """Close, encrypt and keep what a restart or a running job reads (S3, "Expiring objects")."""
    buckets, projects = data_buckets(templates), templates.of("CodeBuild::Project")
    yield from constants(templates.of("S3::Bucket"), Rule.OPEN_TO_ALL, *_CLOSED)
    yield from constants(templates.of("S3::Bucket"), Rule.ENCRYPTION, *_ENCRYPTED)
    yield from constants(buckets, Rule.BUCKET_SETTINGS, *_VERSIONS, warns=True)
    yield from constants(templates.of("ECR::Repository"), Rule.ENCRYPTION, *_IMAGES)
    yield from constants(projects, Rule.PROPERTY, *_BUILD)
    yield from constants(templates.of("EFS::AccessPoint"), Rule.PROPERTY, *_HOMES)
    encrypted = ("Encrypted", (YES,), "its files are stored in plain text")
    yield from constants(templates.of("EFS::FileSystem"), Rule.ENCRYPTION, encrypted)
    every = [rule for each in buckets for rule in each["LifecycleConfiguration"]["Rules"]]
    for rule in (each for each in every if each["Status"].raw != "Disabled"):
        moves = [each["StorageClass"] for each in (*rule["Transitions"], rule["Transition"])]
        away = [each for each in moves if each.text in {"GLACIER", "DEEP_ARCHIVE"}]
        prefix = rule["Prefix"].text  # of what `meks data push` fills, or jobs write?
        read = any(prefix.startswith(e) or e.startswith(prefix) for e in ("data/", "checkpoints/"))
        for when in (rule["ExpirationInDays"], rule["ExpirationDate"], *away) if read else ():
            found = f"{when.name} {when.raw} deletes what a restart or a running job reads"
            remedy = "remove it: NoncurrentVersionExpiration deletes only what was replaced"
            yield from report(Rule.EXPIRES, when, when, found, remedy, warns=rule["TagFilters"])
    for each in templates.of("ECR::Repository"):
        for rule in each["LifecyclePolicy"]["LifecyclePolicyText"].parsed["rules"]:
            chosen, why = rule["selection"], "images that jobs use are deleted"
            patterns = {*chosen["tagPrefixList"].texts, *chosen["tagPatternList"].texts}
            states = ("untagged", "tagged")[: 1 + bool(patterns - {"*", ""})]
            yield from chosen["tagStatus"].must_be(Rule.EXPIRES, *states, why=why)


@template_guard
def bucket_policies(templates: Templates) -> Found:
    """Refuse what passes openly (S3, "Security best practices")."""
    for bucket in templates.of("S3::Bucket"):
        beside = templates.of("S3::BucketPolicy")
        policies = [e["PolicyDocument"] for e in beside if templates.target(e["Bucket"]) == bucket]
        policies, arn = policies or [bucket["BucketPolicy"]], f"${{{bucket.name}.Arn}}"
        on, code = (arn, f"{arn}/*"), Rule.BUCKET_SETTINGS
        why = f"data of {bucket.name} can travel unencrypted"
        both = (Need(code, why, ("s3:*",), on, "*", (e,), "Deny", warns=True) for e in _TLS)
        yield from needs(templates, policies, *both)


@template_guard
def key_policies(templates: Templates) -> Found:
    """Let an account manage its keys, and log groups use them (KMS, "Default key policy")."""
    keys, code = templates.of("KMS::Key"), Rule.KEY_POLICY
    rotation = ("EnableKeyRotation", (YES,), "it is never rotated")
    yield from constants(keys, Rule.ENCRYPTION, rotation, warns=True)
    yield from constants(keys, code, ("Enabled", (YES, None), "nothing can be encrypted"))
    for key in keys:
        policy = [key["KeyPolicy"]]
        yield from needs(templates, policy, _ROOT)
        parts = [e[k] for e in statements(*policy) for k in ("Condition", "Principal")]
        said = [texts(templates, e) for p in parts for e in (p["ArnLike"][_CONTEXT], p["Service"])]
        place = re.search(r"\blogs[.:]([a-z]+-[a-z0-9-]+|\$\{AWS::Region\})[.:]", str(said))
        region = place[1] if place else "REGION"
        who = "|".join(f"logs.{region}.{domain}" for domain in _DOMAINS)
        for group in (e for e in templates.users(key) if e.type == "AWS::Logs::LogGroup"):
            arn = f"arn:${{AWS::Partition}}:logs:{region}:${{AWS::AccountId}}:log-group:"
            test = ("ArnLike", _CONTEXT, f"{arn}{templates.text(group['LogGroupName'])}")
            actions = tuple(f"kms:{each}" for each in _LOG_USE)
            why = f"log group {group.name} is not created, unless its name is wrong"
            yield from needs(templates, policy, Need(code, why, actions, ("*",), who, (test,)))


@template_guard
def kept_with_its_data(templates: Templates) -> Found:
    """Keep data, and the key without which nobody reads them (CloudFormation, DeletionPolicy)."""
    data = templates.of(*_DATA)
    # `storage.retain: false` writes Delete everywhere; that of Lustre is worth a word.
    kept = {e.file for e in data if any(e.body[name].raw != "Delete" for name in _POLICIES)}
    for each in templates.resources:
        deleted, replaced = [each.body[name] for name in _POLICIES]
        matters = each in data and (each.file in kept or "FSx" in each.type)
        row = [(name, _KEPT, f"{each.name} is lost with the stack") for name in _POLICIES]
        if matters or deleted.raw != replaced.raw:
            yield from each.body.must_hold(Rule.LUSTRE_RETAINED, *row, warns=True)
        for key in templates.of("KMS::Key") if deleted.raw in _KEPT else ():
            if each in templates.users(key):
                why = f"{each.name} stays, and nobody can read it"
                yield from key.body[_POLICIES[0]].must_be(Rule.KEY_LOST, *_KEPT, why=why)
