"""Layers with a run axis: linear ones, and layers of logic gates."""
