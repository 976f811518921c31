"""``python -m tailback``: the command line, if the script is not on the path."""

from tailback.cli import main

main()
