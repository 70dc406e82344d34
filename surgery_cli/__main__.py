"""`python -m surgery_cli` is `surgery`."""

from surgery_cli.cli.main import run

if __name__ == "__main__":
    run()
