"""Compiled loops (Numba) for fleets on CPUs."""
