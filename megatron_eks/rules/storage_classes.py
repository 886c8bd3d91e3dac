"""Rule over storage classes of which the driver for FSx for Lustre makes file systems."""

from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Path
from megatron_eks.rules.manifest_set import Found, ManifestSet, in_one_folder
from megatron_eks.rules.values import is_absent, mapping, shown

_FSX = "fsx.csi.aws.com"
_CLOSE = 0.85
_PARAMETERS = (
    *("autoImportPolicy", "automaticBackupRetentionDays", "copyTagsToBackups"),
    *("dailyAutomaticBackupStartTime", "dataCompressionType", "deploymentType", "driveCacheType"),
    *("efaEnabled", "extraTags", "fileSystemTypeVersion", "kmsKeyId", "metadataConfigurationMode"),
    *("metadataIops", "perUnitStorageThroughput", "s3ExportPath", "s3ImportPath"),
    *("securityGroupIds", "storageType", "subnetId", "weeklyMaintenanceStartTime"),
)


def parameters(together: ManifestSet) -> Iterator[Found]:
    """Require of a class the subnet of its file systems, and names that the driver reads.

    aws-fsx-csi-driver v1.9.0, pkg/driver/controller.go; a class of volumes that are made by hand,
    as those beside it, needs neither.
    """
    for each in together.of("StorageClass"):
        given = mapping(each.body.get("parameters"))
        made = any(
            volume.spec.get("storageClassName") == each.name and in_one_folder(volume, each)
            for volume in together.of("PersistentVolume")
        )
        if each.body.get("provisioner") != _FSX or given is None or made:
            continue
        path: Path = ("parameters", "subnetId")
        if is_absent(given.get("subnetId")):
            found = "no subnetId, and the driver makes no file system without one"
            remedy = "name the subnet of the nodes"
            yield each, each.find(Code.CLAIM_AND_VOLUME, path, found, remedy)
        for key in given:
            known = {name.lower(): name for name in _PARAMETERS}
            close = get_close_matches(key.lower(), known, 1, _CLOSE)
            if key not in _PARAMETERS and close:
                found = f"the driver reads no {shown(key)}"
                remedy = f"did you mean {known[close[0]]}?"
                path = ("parameters", key)
                yield each, each.find(Code.CLAIM_AND_VOLUME, path, found, remedy)
