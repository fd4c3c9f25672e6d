"""`python -m kimisvc` is `kimisvc`."""

from kimisvc.cli.main import run

if __name__ == "__main__":
    run()
