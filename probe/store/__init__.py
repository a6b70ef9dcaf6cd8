"""The capture file: a stream of msgpack records that survives interruption and damage."""
