"""A progress bar on standard error, for commands that take long; nothing where nobody watches."""

from __future__ import annotations

import sys
from typing import Any

WIDTH = 40


class Bar:
    """Shows how much of `total` is done. `stderr` is the command's own."""

    def __init__(self, stderr: Any, total: int) -> None:
        self._stderr = stderr
        self._total = total
        self._done = 0

    def advance(self, by: int = 1) -> None:
        """Tell that so many more are done; the total grows when there were more than was thought."""
        self._done += by
        self._total = max(self._total, self._done)
        if not sys.stderr.isatty() or not self._total:
            return
        filled = WIDTH * self._done // self._total
        end = "\n" if self._done == self._total else ""
        self._stderr.write(f"\r[{'#' * filled}{'.' * (WIDTH - filled)}] {self._done}/{self._total}", ending=end)
