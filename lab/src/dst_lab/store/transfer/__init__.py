"""Runs that go from one file to another: copied, merged, rescued from a vanished store, salvaged from a damaged one."""
