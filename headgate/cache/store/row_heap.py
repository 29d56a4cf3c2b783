"""Which of many rows ranks lowest, in a few bytes a row."""

from __future__ import annotations

from array import array


class RowHeap:
    """Rows by rank, the lowest first: a binary heap that knows where each row stands, so that a row can move.

    A rank is a number and, between equals, a serial number. Rows are small integers that are used again when free; a
    row takes 24 bytes, whether it is ranked or was once. Ranking and removing take a time of the order of the
    logarithm of the number of rows; a row that moves a little takes less.
    """

    def __init__(self) -> None:
        """No rows."""
        self._rows = array("I")
        self._at = array("I")
        self.numbers = array("d")
        """Of each row's rank, by row; to be read."""
        self.serials = array("Q")
        """Of each row's rank, by row; to be read."""

    def __len__(self) -> int:
        """Rows ranked."""
        return len(self._rows)

    def lowest(self) -> int:
        """The row with the lowest rank.

        Raises:
            IndexError: no row is ranked.
        """
        return self._rows[0]

    def add(self, row: int, number: float, serial: int) -> None:
        """Rank a row that is not ranked; it is at most one beyond the largest that ever was."""
        if row == len(self._at):
            self._at.append(0)
            self.numbers.append(0.0)
            self.serials.append(0)
        self.numbers[row] = number
        self.serials[row] = serial
        self._rows.append(row)
        self._rise(row, len(self._rows) - 1)

    def move(self, row: int, number: float, serial: int) -> None:
        """Give a ranked row another rank."""
        self.numbers[row] = number
        self.serials[row] = serial
        self._settle(row, self._at[row])

    def remove(self, row: int) -> None:
        """Rank a row no more."""
        at, last = self._at[row], self._rows.pop()
        if last != row:
            self._settle(last, at)

    def _settle(self, row: int, at: int) -> None:
        """Put a row where it belongs, `at` being free."""
        self._sink(row, at)
        if self._at[row] == at:
            self._rise(row, at)

    def _rise(self, row: int, at: int) -> None:
        rows, place, numbers, serials = self._rows, self._at, self.numbers, self.serials
        number, serial = numbers[row], serials[row]
        while at:
            above = (at - 1) >> 1
            other = rows[above]
            if numbers[other] < number or (numbers[other] == number and serials[other] <= serial):
                break
            rows[at] = other
            place[other] = at
            at = above
        rows[at] = row
        place[row] = at

    def _sink(self, row: int, at: int) -> None:
        rows, place, numbers, serials = self._rows, self._at, self.numbers, self.serials
        number, serial, size = numbers[row], serials[row], len(rows)
        while (below := 2 * at + 1) < size:
            other = rows[below]
            if below + 1 < size:
                right = rows[below + 1]
                if numbers[right] < numbers[other] or (
                    numbers[right] == numbers[other] and serials[right] < serials[other]
                ):
                    below, other = below + 1, right
            if number < numbers[other] or (number == numbers[other] and serial <= serials[other]):
                break
            rows[at] = other
            place[other] = at
            at = below
        rows[at] = row
        place[row] = at
