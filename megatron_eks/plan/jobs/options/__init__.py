"""Options that a job file adds to Megatron's own, and overrides of a recipe's values."""
