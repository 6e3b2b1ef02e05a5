"""Runs that go from one file to another: copied and merged."""
