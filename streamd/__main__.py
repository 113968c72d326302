"""`python -m streamd`: the `streamd` program."""

from streamd.cli import main

if __name__ == "__main__":
    main()
