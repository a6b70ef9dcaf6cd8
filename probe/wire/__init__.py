"""The servers: a vLLM client, and the embedded engine that answers the same routes."""
