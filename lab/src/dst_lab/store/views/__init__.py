"""What people and other tools are shown of a store: chosen runs, tables, differences, exported files."""
