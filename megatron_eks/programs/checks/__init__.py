"""What the checks of nodes and file systems read."""
