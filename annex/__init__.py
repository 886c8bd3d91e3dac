"""What stands beside the product and knows nothing of it."""
