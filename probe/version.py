"""Which flipscope this is; the build reads the number from here."""

__version__ = "0.1.0"
