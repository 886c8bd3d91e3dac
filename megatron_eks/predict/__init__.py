"""How a job will behave, computed before any GPU is rented."""
