"""Mounts, volumes, claims and the owners of directories."""

import pytest

from tests.guards.slips import ABSENT, in_manifest, without

_JOB = "PyTorchJob/megatron-cpt-techpulse"
_POD = "spec pytorchReplicaSpecs Master template spec"
_MOUNTS = f"{_POD} containers 0 volumeMounts"
_VOLUME = "PersistentVolume/techpulse-megatron-workshop-fsx-shared-pvc"
_CLAIM = "PersistentVolumeClaim/fsx-shared-pvc"
_SET_UP = "Job/shared-directories-b1d2b1d1"
_ATTRIBUTES = "spec csi volumeAttributes"
_FITS = "CLAIM_AND_VOLUME"


@pytest.mark.parametrize(
    ("name", "place", "value", "code"),
    [
        (_JOB, f"{_MOUNTS} 0 name", "data", "UNKNOWN_VOLUME"),
        (_JOB, f"{_MOUNTS} 0 mountPath", "/fsx", "LOST_OUTPUT"),
        (_JOB, f"{_MOUNTS} 2 mountPath", "/shared", "DUPLICATE_IN_POD"),
        (_JOB, f"{_MOUNTS} 2", ABSENT, "LOST_OUTPUT"),
        (_JOB, f"{_MOUNTS} 0 readOnly", True, "LOST_OUTPUT"),
        (_JOB, f"{_POD} volumes 0", ABSENT, "UNKNOWN_VOLUME"),
        (_JOB, f"{_POD} volumes 0", {"name": "shared", "emptyDir": {}}, "CHECKPOINTS_LOST"),
        (_JOB, f"{_POD} volumes 0 persistentVolumeClaim claimName", "fsx-pvc", "MISSING_OBJECT"),
        (_JOB, f"{_POD} securityContext runAsUser", 1000, "DIRECTORY_OWNER"),
        (_VOLUME, "spec persistentVolumeReclaimPolicy", "Delete", "RECLAIMED"),
        (_VOLUME, "spec accessModes", ["ReadWriteOnce"], _FITS),
        (_VOLUME, "spec volumeMode", "Block", _FITS),
        (_VOLUME, "spec capacity storage", "600Gi", _FITS),
        (_VOLUME, "spec csi volumeHandle", "fsx-0123456789abcdef0", _FITS),
        (_VOLUME, "spec csi volumeHandle", "fs-preview::megatron-system", _FITS),
        (
            _VOLUME,
            f"{_ATTRIBUTES} dnsname",
            "fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com",
            _FITS,
        ),
        (_VOLUME, f"{_ATTRIBUTES} mountname", "fsx", _FITS),
        (_VOLUME, "spec claimRef name", "fsx-pvc", _FITS),
        (_CLAIM, "spec storageClassName", "gp3", _FITS),
        (_CLAIM, "spec volumeName", "techpulse-fsx", _FITS),
        (_CLAIM, "spec volumeName", ABSENT, _FITS),
        (_CLAIM, "spec resources requests storage", "2400Gi", _FITS),
    ],
)
def test_mistakes(name, place, value, code):
    """The pod is refused, or its files are lost; the mount fails, or the claim waits."""
    assert code in in_manifest(name, place, value)


def test_a_real_file_system_is_right():
    """An id of AWS in all places, also with a folder of its own."""
    csi = {
        "driver": "fsx.csi.aws.com",
        "volumeHandle": "fs-0123456789abcdef0::nlp",
        "volumeAttributes": {
            "dnsname": "fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com",
            "mountname": "abcdefgh/teams/nlp",
        },
    }
    assert in_manifest(_VOLUME, "spec csi", csi) == set()
    assert in_manifest(_VOLUME, "spec mountOptions", ["flock", "noatime"]) == set()


def test_missing_volume():
    """The claim's volume is gone."""
    assert _FITS in without(_VOLUME)


@pytest.mark.parametrize(
    ("index", "value"), [(0, "1000:1000"), (0, "megatron"), (1, "0750"), (2, "tke"), (3, ABSENT)]
)
def test_set_up_job(index, value):
    """Directories of another user, a mode without writing, a rule that is none."""
    place = f"spec template spec containers 0 args {index}"
    found = in_manifest(_SET_UP, place, value)
    assert "DIRECTORY_OWNER" in found
