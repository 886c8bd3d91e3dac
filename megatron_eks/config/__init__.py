"""What the user wants: cluster and job files as strict, frozen models."""
