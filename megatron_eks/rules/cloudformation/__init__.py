"""Rules over CloudFormation templates, and what they share."""
