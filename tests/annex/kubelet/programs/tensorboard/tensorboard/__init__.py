"""Stands in for TensorBoard, which this machine does not have."""
