"""Numbers from arrays: no I/O, no servers, no screen. Natural logarithms (nats) everywhere."""
