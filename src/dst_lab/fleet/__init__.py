"""R runs as one program: run axis, noise, Adam, loop, checkpoints."""
