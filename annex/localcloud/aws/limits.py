"""What the local AWS does not check, so that nobody takes its silence for AWS's consent."""

NOT_CHECKED = (
    "permissions: every client may do everything, roles and policies are kept and never applied",
    "the age of sessions: the keys of a role are taken until the end, and SigV2 never",
    "quotas, capacity and the size of policies: there is plenty, and nothing is refused for them",
    "conditions and effects of bucket, key and repository policies, and what trust policies say",
    "whether roles and users exist that policies, access entries and node groups name",
    (
        "AMIs, launch template user data and whether a node would join: an instance of a node "
        "group is a node of the local cluster, or nothing runs on it"
    ),
    (
        "Kubernetes behind EKS: one API server stands for all clusters, and outlives them; of "
        "access policies it knows AmazonEKSClusterAdminPolicy alone; add-ons run nothing"
    ),
    "EFA, placement groups and network cards: `python app.py` and `meks check` judge them",
    "routes, security groups and endpoints: no packet ever flows",
    (
        "combinations of properties that a service refuses and neither its public model nor "
        "CloudFormation's public schema describes"
    ),
    "whether an add-on version, AMI release or engine version exists",
    "AWS's own IAM policies that are newer than moto's list: they are refused",
    "names that are taken in another account, such as those of buckets",
    "requests to S3 and STS against their models",
    "lengths and patterns of values in the parameter store",
    "images: a build finds its source and pushes a manifest without layers",
    "GitHub connections and webhooks: they are written down and never called",
    "time: what takes AWS minutes is done when the request is answered, and nothing ends at a date",
    "cost",
    (
        "the form of templates and requests that the CDK would not write: sections, attributes, "
        "names, constraints of parameters, capabilities; functions that none of our stacks has are "
        "refused"
    ),
    "drift, stack policies, stack sets, hooks, nested stacks, macros and custom resources",
    "whether a failed deployment is to stay as it is: it is always rolled back",
    "propagation of a stack's own tags to its resources",
)
"""One sentence each; printed by `meks local limits` and copied in docs/local-aws.md."""
