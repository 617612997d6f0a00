"""The Python API; its names are listed in `ragbench/__init__.pyi`."""
