"""The Storage stack: a file system that nodes can mount, a bucket, and what keeps both."""

import pytest

NODES = "ExportsOutputFnGetAttNodeSecurityGroupGroupId"
SERVERS = {"Fn::GetAtt": ["LustreSecurityGroup", "GroupId"]}

# FSx for Lustre User Guide, "File system access control with Amazon VPC": 988-1023 opens
# too much, and 988 alone too little.
LUSTRE_PORTS = {(988, 988), (1018, 1023)}


def ports(rules):
    """Return the port ranges of TCP rules."""
    assert {rule["IpProtocol"] for rule in rules} == {"tcp"}
    return {(rule["FromPort"], rule["ToPort"]) for rule in rules}


def is_nodes(peer):
    """Tell whether a rule's peer is the nodes' group, which another stack exports."""
    return NODES in peer.get("Fn::ImportValue", "")


def test_the_file_system_is_the_one_planned(assembly, storage):
    """2.15 with metadata settings: neither can be added later."""
    planned = assembly.plan.storage.lustre
    _, lustre = storage.only("AWS::FSx::FileSystem")
    assert lustre["FileSystemType"] == "LUSTRE"
    assert lustre["FileSystemTypeVersion"] == "2.15"
    assert lustre["StorageCapacity"] == planned.capacity_gib
    assert lustre["KmsKeyId"] == {"Fn::GetAtt": ["Key", "Arn"]}
    assert lustre["LustreConfiguration"] == {
        "DeploymentType": "PERSISTENT_2",
        "PerUnitStorageThroughput": planned.throughput_mbps_per_tib,
        "DataCompressionType": "LZ4",
        "MetadataConfiguration": {"Mode": "AUTOMATIC"},
    }


def test_the_file_system_stands_in_the_gpus_zone(storage):
    """Traffic between zones is slow and billed in both directions."""
    _, lustre = storage.only("AWS::FSx::FileSystem")
    [subnet] = lustre["SubnetIds"]
    assert "PrivateSubnetuseast2b" in subnet["Fn::ImportValue"]


def test_the_file_systems_group_opens_lustres_ports_and_no_other(storage):
    """From and to the nodes inside the group, from and to itself in rules of their own."""
    _, group = storage.only("AWS::EC2::SecurityGroup")
    ingress, egress = group["SecurityGroupIngress"], group["SecurityGroupEgress"]
    assert ports(ingress) == ports(egress) == LUSTRE_PORTS
    assert all(is_nodes(rule["SourceSecurityGroupId"]) for rule in ingress)
    assert all(is_nodes(rule["DestinationSecurityGroupId"]) for rule in egress)
    own_ingress = [
        rule
        for rule in storage.properties("AWS::EC2::SecurityGroupIngress")
        if rule["GroupId"] == SERVERS
    ]
    own_egress = storage.properties("AWS::EC2::SecurityGroupEgress")
    assert ports(own_ingress) == ports(own_egress) == LUSTRE_PORTS
    assert all(rule["SourceSecurityGroupId"] == SERVERS for rule in own_ingress)
    assert all(rule["DestinationSecurityGroupId"] == SERVERS for rule in own_egress)


def test_file_servers_may_call_nodes_back(storage):
    """The nodes' group takes Lustre's ports from the file servers' group."""
    rules = [
        rule
        for rule in storage.properties("AWS::EC2::SecurityGroupIngress")
        if is_nodes(rule["GroupId"])
    ]
    assert ports(rules) == LUSTRE_PORTS
    assert all(rule["SourceSecurityGroupId"] == SERVERS for rule in rules)


def test_the_file_system_waits_for_every_rule(storage):
    """CreateFileSystem tries port 988 first, and fails where the rule is not there yet."""
    rules = {
        name
        for name, resource in storage.resources.items()
        if resource["Type"].startswith("AWS::EC2::SecurityGroup")
    }
    rules.discard("LustreSecurityGroup")
    assert set(storage.resources["Lustre"]["DependsOn"]) == rules


@pytest.mark.parametrize(("retain", "policy"), [(True, "Retain"), (False, "Delete")])
def test_retain_decides_over_everything_that_the_stack_holds(changed, retain, policy):
    """Key and rules too: data without its key, or a file system without ports, is lost."""
    template = changed(lambda cluster: cluster["storage"].update(retain=retain)).template("Storage")
    # The jobs' role holds nothing, and is made again.
    for name in template.resources.keys() - {"JobRole"}:
        resource = template.resources[name]
        assert resource["DeletionPolicy"] == policy, name
        assert resource["UpdateReplacePolicy"] == policy, name


def test_outputs_are_the_keys_that_charts_read(storage):
    """outputs.json is a contract: no key more, none less."""
    values = {
        name: output["Value"]
        for name, output in storage.body["Outputs"].items()
        # What the Cluster stack imports; CDK names it.
        if "Export" not in output
    }
    assert values == {
        "LustreId": {"Ref": "Lustre"},
        "LustreDnsName": {"Fn::GetAtt": ["Lustre", "DNSName"]},
        "LustreMountName": {"Fn::GetAtt": ["Lustre", "LustreMountName"]},
        "BucketName": {"Ref": "Bucket"},
        "JobRoleArn": {"Fn::GetAtt": ["JobRole", "Arn"]},
    }


def test_the_bucket_keeps_versions_and_cleans_up(storage):
    """A failed upload of a checkpoint is invisible, and billed until somebody aborts it."""
    bucket = storage.resources["Bucket"]["Properties"]
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}
    [rule] = bucket["LifecycleConfiguration"]["Rules"]
    assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 7}
    assert rule["NoncurrentVersionExpiration"] == {"NoncurrentDays": 30}
    assert "ExpirationInDays" not in rule


def test_the_bucket_encrypts_with_the_stacks_key(storage):
    """With a bucket key: a data set of a million objects would be a million calls to KMS."""
    bucket = storage.resources["Bucket"]["Properties"]
    [rule] = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["BucketKeyEnabled"] is True
    assert rule["ServerSideEncryptionByDefault"] == {
        "SSEAlgorithm": "aws:kms",
        "KMSMasterKeyID": {"Fn::GetAtt": ["Key", "Arn"]},
    }


@pytest.mark.parametrize("name", ["Bucket", "AccessLogs"])
def test_buckets_are_closed_to_the_public(storage, name):
    """All four switches: each closes what another leaves open."""
    block = storage.resources[name]["Properties"]["PublicAccessBlockConfiguration"]
    assert block == dict.fromkeys(
        ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets"), True
    )


@pytest.mark.parametrize(
    ("policy", "bucket"), [("BucketPolicy", "Bucket"), ("AccessLogsPolicy", "AccessLogs")]
)
def test_buckets_refuse_what_is_not_encrypted_on_the_way(storage, policy, bucket):
    """Plain HTTP and TLS before 1.2, for every action and whoever asks."""
    properties = storage.resources[policy]["Properties"]
    assert properties["Bucket"] == {"Ref": bucket}
    denials = [
        statement
        for statement in properties["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Deny"
    ]
    assert [denial["Condition"] for denial in denials] == [
        {"Bool": {"aws:SecureTransport": "false"}},
        {"NumericLessThan": {"s3:TlsVersion": 1.2}},
    ]
    arn = {"Fn::GetAtt": [bucket, "Arn"]}
    for denial in denials:
        assert denial["Principal"] == {"AWS": "*"}
        assert denial["Action"] == ["s3:*"]
        assert denial["Resource"] == [arn, {"Fn::Join": ["", [arn, "/*"]]}]


def test_s3_records_who_reads_the_bucket(storage):
    """Only S3's log service, only for this bucket and account, writes to the other one."""
    logging = storage.resources["Bucket"]["Properties"]["LoggingConfiguration"]
    assert logging == {"DestinationBucketName": {"Ref": "AccessLogs"}}
    [delivery] = [
        statement
        for statement in storage.resources["AccessLogsPolicy"]["Properties"]["PolicyDocument"][
            "Statement"
        ]
        if statement["Effect"] == "Allow"
    ]
    assert delivery["Principal"] == {"Service": "logging.s3.amazonaws.com"}
    assert delivery["Action"] == ["s3:PutObject"]
    assert delivery["Condition"] == {
        "StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}},
        "ArnLike": {"aws:SourceArn": {"Fn::GetAtt": ["Bucket", "Arn"]}},
    }
