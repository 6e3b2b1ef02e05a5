"""Circuits as files: C, Verilog, AIGER, JSON, DOT."""
