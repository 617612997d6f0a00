"""The command line: one module per command, which parses, calls one function and prints."""
