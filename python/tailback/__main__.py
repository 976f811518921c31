"""``python -m tailback``: the command line, where the script of that name is not on the path."""

from tailback.cli import main

main()
