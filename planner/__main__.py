"""The entry point of the command line: everything else is imported inside of it."""

# the module `signal` takes milliseconds to load, in which Ctrl-C may come
import _signal  # type: ignore[import-not-found]


def main() -> None:
    """Runs the command line; Ctrl-C while its modules load ends the process without a traceback."""
    handler = _signal.getsignal(_signal.SIGINT)
    if handler is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    from planner.cli import main as run

    _signal.signal(_signal.SIGINT, handler)
    run()


if __name__ == "__main__":
    main()
