"""The command line, for `python -m greenroom`."""

from greenroom.http.command_line import main

if __name__ == "__main__":
    main()
