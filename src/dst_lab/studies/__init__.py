"""One folder per question: its recipes, its rules, its figures, and what its page says."""
