"""The Storage stack: a file system that nodes can mount, a bucket, and what keeps both."""

import pytest


# FSx for Lustre User Guide, "File system access control with Amazon VPC": 988-1023 opens
# too much, and 988 alone too little.
def ports(rules):
    """Return the port ranges of TCP rules."""
    assert {rule["IpProtocol"] for rule in rules} == {"tcp"}
    return {(rule["FromPort"], rule["ToPort"]) for rule in rules}


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
