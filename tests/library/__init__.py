"""Three apps of others that use the constructs and charts; docs/library.md shows them."""
