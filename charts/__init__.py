"""The Kubernetes side, in cdk8s; importing this package alone does not start Node."""
