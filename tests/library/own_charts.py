"""The platform's charts and a job from dictionaries, in a cdk8s app of one's own."""

import cdk8s

from charts.library import TrainingJob, add_platform

CLUSTER = {
    "schema_version": 1,
    "name": "research",
    "region": "us-east-2",
    "availability_zones": ["us-east-2a", "us-east-2b"],
    "access": {
        "admin_role_arns": ["arn:aws:iam::210987654321:role/Admin"],
        "public_cidrs": [],
        "private_route": "vpn",
    },
    "gpu_pools": [
        {
            "name": "p5",
            "instance_type": "p5.48xlarge",
            "availability_zone": "us-east-2a",
            "max_nodes": 4,
        }
    ],
}
JOB = {
    "schema_version": 1,
    "kind": "fsdp",
    "name": "llama-8b",
    "pool": "p5",
    "nodes": 4,
    "model": "llama-3.1-8b",
    "training": {"max_steps": 1000, "train_batch_size": 1},
    "data": {
        "dataset": "allenai/c4",
        "configuration": "en",
        "tokenizer": "hf-internal-testing/llama-tokenizer",
    },
    "checkpoint": {"directory": "/shared/checkpoints/llama-8b"},
}


def build(app: cdk8s.App) -> None:
    """Add what runs in the cluster before any job, and the job."""
    add_platform(app, cluster=CLUSTER)
    TrainingJob(app, "llama-8b", job=JOB, cluster=CLUSTER)
