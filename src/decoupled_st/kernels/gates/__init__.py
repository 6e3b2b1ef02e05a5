"""Layers of logic gates. `on_cuda` is in Triton, `on_cpu` in C; the functions have the same names and do the same."""
