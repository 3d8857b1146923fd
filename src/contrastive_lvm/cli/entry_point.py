"""The entry point of `clvm`, which handles Ctrl-C even while modules are being imported."""


def run() -> int:
    """Import the command line and run it; an interrupt meanwhile ends without a traceback."""
    try:
        from contrastive_lvm.cli.main import run as run_commands

        return run_commands()
    except KeyboardInterrupt:
        return 130  # as shells report an interrupt
