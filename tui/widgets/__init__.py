"""Widgets of the app, one noun each."""
