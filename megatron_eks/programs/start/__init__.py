"""What every training program does before and beside its training."""
