"""Lines out of chunks of bytes: what is not ended by a newline yet is kept until it is."""

from __future__ import annotations

#: A longer line is no record. Without a bound, a binary file would be one line as large as itself.
MAX_LINE = 1 << 20

#: The number of a line, counted from one, and the line without its newline; None if it was too long.
Line = tuple[int, bytes | None]


class Lines:
    """Cuts a stream of bytes into lines.

    >>> lines = Lines()
    >>> lines.feed(b"one\\ntw"), lines.feed(b"o\\n"), lines.rest()
    ([(1, b'one')], [(2, b'two')], None)
    """

    def __init__(self) -> None:
        self._number = 0
        self._open = b""  # the line that has not ended
        self._skipping = False  # it is too long already

    def feed(self, data: bytes) -> list[Line]:
        """Take more bytes; the lines that they complete."""
        parts = data.split(b"\n")
        parts[0] = self._open + parts[0]
        self._open = parts.pop()
        lines: list[Line] = []
        for part in parts:
            lines.append(self._line(part))
        if len(self._open) > MAX_LINE:
            self._open, self._skipping = b"", True
        return lines

    def rest(self) -> Line | None:
        """What follows the last newline, if anything: the end of the bytes ends it."""
        if not self._open and not self._skipping:
            return None
        line, self._open = self._open, b""
        return self._line(line)

    def _line(self, line: bytes) -> Line:
        self._number += 1
        if self._skipping or len(line) > MAX_LINE:
            self._skipping = False
            return self._number, None
        return self._number, line[:-1] if line.endswith(b"\r") else line
