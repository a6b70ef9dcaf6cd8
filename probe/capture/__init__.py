"""Capturing: one text, several runtimes, one resumable file each."""
