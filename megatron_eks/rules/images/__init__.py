"""Rules over Dockerfiles."""
