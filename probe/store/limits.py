"""Bounds on what a capture file may ask a reader to hold. A file beyond one of them is refused, not allocated."""

from __future__ import annotations

MAX_PAYLOAD = 128 << 20
"""Bytes of one record: 838,000 positions at top-20 need 58 MB."""
MAX_HEADER = 1 << 20
"""Bytes of a header; real ones are below 2 kB."""
MAX_ELEMENTS = 1 << 24
"""Elements of one array: 838,860 positions at top-20, 64 MB of float32."""
MAX_POSITIONS = 1 << 21
"""Tokens of one stream. With `MAX_ELEMENTS` it keeps decoding one record below 0.6 GB."""
MAX_RECORDS = 50_000
"""Records of one file: 25,000 prompts. Walking over so many takes 4 s of CPU; a scan stops there."""
MAX_PIECES = 1 << 20
"""Token pieces of one file over all its vocabulary records."""
MAX_PIECE_BYTES = 64 << 20
"""Bytes of all these pieces together."""
MAX_OBJECTS = 1_000_000
"""Msgpack objects of one record outside its arrays; each may cost a Python object of 60 bytes."""
MAX_DEPTH = 16
"""Nesting of msgpack containers; the deepest real record has 4 levels."""
MAX_TOKEN_ID = (1 << 24) - 1
"""Largest token id; the largest vocabularies of today hold 262,144 tokens."""
MAX_NAME = 512
"""Characters of a prompt id or a category."""
MAX_TEXT = 64 << 10
"""Characters of a failure, a fact or a piece of evidence."""
MAX_PIECE = 64 << 10
"""Bytes of one token; runs of spaces and rulers reach a few hundred."""
MAX_DAMAGE = 50
"""Faults that are listed one by one; the rest is counted."""
