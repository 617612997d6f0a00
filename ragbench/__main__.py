"""`python -m ragbench` is the `ragbench` command."""

from ragbench.cli.main import main

if __name__ == "__main__":
    main()
