"""The store as a file: its header, its schema, who may write it, and how it is opened and replaced."""
