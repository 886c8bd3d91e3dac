"""Data sets, checkpoints and tokens: commands of the panel Data."""
