"""Full screens of the app."""
