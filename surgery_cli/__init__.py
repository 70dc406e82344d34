"""surgery: edit Orbax checkpoints without their model code, by reference where possible."""

__version__ = "0.1.0"
