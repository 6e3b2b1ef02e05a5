"""R runs as one program: run axis, noise, optimiser, loop, checkpoints."""
