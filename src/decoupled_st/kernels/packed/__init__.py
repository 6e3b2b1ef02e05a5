"""Networks of logic gates in packed bits: 32 images of a neuron to a word. `on_cuda` is in Triton, `on_cpu` in C; the
functions have the same names and do the same."""
