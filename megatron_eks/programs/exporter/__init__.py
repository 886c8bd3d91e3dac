"""What a Prometheus is told of the run in a pod."""
