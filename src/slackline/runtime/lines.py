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
        self._skipping = False  # it is too long and was given already; its rest is nothing

    def feed(self, data: bytes) -> list[Line]:
        """Take more bytes; the lines that they complete, and one that is too long already."""
        parts = data.split(b"\n")
        parts[0] = self._open + parts[0]
        self._open = parts.pop()
        lines: list[Line] = []
        for part in parts:
            if not self._skipping:
                lines.append(self._line(part))
            self._skipping = False
        if len(self._open) > MAX_LINE and not self._skipping:
            lines.append(self._line(self._open))
            self._skipping = True
        if self._skipping:
            self._open = b""
        return lines

    def rest(self) -> Line | None:
        """What follows the last newline, if anything: the end of the bytes ends it."""
        if not self._open:
            return None
        line, self._open = self._open, b""
        return self._line(line)

    def _line(self, line: bytes) -> Line:
        self._number += 1
        if len(line) > MAX_LINE:
            return self._number, None
        return self._number, line[:-1] if line.endswith(b"\r") else line
