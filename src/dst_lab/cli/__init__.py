"""`dst`, the command line of the laboratory."""
