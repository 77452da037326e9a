"""`python -m pagoda` is the `pagoda` command."""

from pagoda.cli.main import run

if __name__ == "__main__":
    run()
