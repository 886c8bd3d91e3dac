"""What will exist, exactly: every derived number, computed once."""
