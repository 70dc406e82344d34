"""The program: `surgery`, and `python -m surgery_cli`."""

import signal


def main() -> None:
    """Run the program. Until it is loaded, Ctrl-C ends it without a traceback: nothing has been begun."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from surgery_cli.cli.process import collect_rarely, leave, sleep_when_idle

    collect_rarely()
    sleep_when_idle()
    from surgery_cli.cli.main import run

    signal.signal(signal.SIGINT, handler)
    try:
        run()
    except SystemExit as ended:
        if not isinstance(ended.code, int):
            raise
        leave(ended.code)


if __name__ == "__main__":
    main()
