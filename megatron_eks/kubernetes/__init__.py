"""A small client of the Kubernetes API, for clusters on this machine and on EKS."""
