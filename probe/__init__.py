"""Captures, scores and stores what inference servers predict: everything of flipscope but the screen."""
