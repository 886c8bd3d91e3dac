"""Training jobs: one pod, and the resources that run it on several nodes."""
