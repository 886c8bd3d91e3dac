"""Texts to token data sets as Megatron reads them."""
