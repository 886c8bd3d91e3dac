"""What is known of files: the plan, its checks, predictions and searches."""
