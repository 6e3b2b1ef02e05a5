"""What a person sees in a terminal: text, progress and curves."""
