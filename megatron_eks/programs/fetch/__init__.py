"""Models and tokenizers from Hugging Face or S3."""
