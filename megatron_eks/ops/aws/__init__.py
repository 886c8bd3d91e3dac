"""The way to AWS: session, stacks, the CDK; clients are handed in."""
