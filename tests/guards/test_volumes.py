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
    ("place", "value", "code"),
    [
        (f"{_MOUNTS} 0 name", "data", "UNKNOWN_VOLUME"),
        (f"{_MOUNTS} 0 mountPath", "/fsx", "LOST_OUTPUT"),
        (f"{_MOUNTS} 2 mountPath", "/shared", "DUPLICATE_IN_POD"),
        (f"{_MOUNTS} 2", ABSENT, "LOST_OUTPUT"),
        (f"{_MOUNTS} 0 readOnly", True, "LOST_OUTPUT"),
        (f"{_POD} volumes 0", ABSENT, "UNKNOWN_VOLUME"),
        (f"{_POD} volumes 0", {"name": "shared", "emptyDir": {}}, "CHECKPOINTS_LOST"),
        (f"{_POD} volumes 0 persistentVolumeClaim claimName", "fsx-pvc", "MISSING_OBJECT"),
        (f"{_POD} securityContext runAsUser", 1000, "DIRECTORY_OWNER"),
    ],
)
def test_files_of_jobs(place, value, code):
    """The pod is refused, or its output is lost or cannot be written."""
    assert code in in_manifest(_JOB, place, value)


@pytest.mark.parametrize(
    ("place", "value", "code"),
    [
        ("spec persistentVolumeReclaimPolicy", "Delete", "RECLAIMED"),
        ("spec accessModes", ["ReadWriteOnce"], _FITS),
        ("spec volumeMode", "Block", _FITS),
        ("spec capacity storage", "600Gi", _FITS),
        ("spec csi volumeHandle", "fsx-0123456789abcdef0", _FITS),
        ("spec csi volumeHandle", "fs-preview::megatron-system", _FITS),
        (f"{_ATTRIBUTES} dnsname", "fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com", _FITS),
        (f"{_ATTRIBUTES} mountname", "fsx", _FITS),
        ("spec claimRef name", "fsx-pvc", _FITS),
    ],
)
def test_volumes(place, value, code):
    """The mount fails, the claim waits, or the files go with it."""
    assert code in in_manifest(_VOLUME, place, value)


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


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("spec storageClassName", "gp3"),
        ("spec volumeName", "techpulse-fsx"),
        ("spec volumeName", ABSENT),
        ("spec resources requests storage", "2400Gi"),
    ],
)
def test_claims(place, value):
    """The claim waits, or gets another volume."""
    assert _FITS in in_manifest(_CLAIM, place, value)


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
