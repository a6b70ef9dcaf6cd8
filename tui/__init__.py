"""The terminal app: draws what `probe` has read and scored."""
