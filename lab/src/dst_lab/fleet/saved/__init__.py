"""What is saved of a fleet: checkpoints while it trains, then its runs' records, and where they come from."""
