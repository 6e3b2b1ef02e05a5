"""What a store holds of a run, and how each is written and read back: its row, history and network."""
