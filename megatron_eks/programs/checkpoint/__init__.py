"""Checkpoints: whole ones, old ones, and their copies in S3."""
