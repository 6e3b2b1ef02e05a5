"""Layers of trees of gates with their pool: `on_cuda` is in Triton, `on_cpu` in C; the functions have the same names.
`values_of` lays images out as a row of images per place, `forward` and `backward` are one layer."""
