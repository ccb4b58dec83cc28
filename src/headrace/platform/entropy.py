"""Random bytes from the operating system: for ids and nonces that nobody may guess."""

from __future__ import annotations

import os


class SystemEntropy:
    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)
