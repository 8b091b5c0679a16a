"""Pages of the cache: which are free, and which hold the beginning of texts that come again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from examples.llm.kernels import PAGE


class Pages:
    """Counts the users of every page. A full page is found by its tokens and those before it, and shared.

    Tokens up to the end of a full page are a *prefix*, which has a number. 0 is the empty one, and negative
    numbers are empty ones whose pages others do not share, those of adapters. A page without
    users keeps its content until its memory is needed: the one unused for longest goes first.

    Args:
        count: number of pages.
    """

    def __init__(self, count: int) -> None:
        self._users = [0] * count
        self._unused: OrderedDict[int, None] = OrderedDict.fromkeys(range(count))
        self._full: dict[tuple[int, tuple[int, ...]], tuple[int, int]] = {}
        self._keys: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._prefixes = 0

    @property
    def free(self) -> int:
        """Pages without users."""
        return len(self._unused)

    def take(self) -> int:
        """Return a page with one user, whose content is lost.

        Raises:
            KeyError: every page has users.
        """
        page, _ = self._unused.popitem(last=False)
        if page in self._keys:
            del self._full[self._keys.pop(page)]
        self._users[page] = 1
        return page

    def share(self, ids: Sequence[int], prefix: int = 0) -> tuple[list[int], int]:
        """Return the pages of the longest known prefix of some tokens but the last, and its number.

        It begins with the empty prefix `prefix`. Each page gets one more user.
        """
        found = []
        for end in range(PAGE, len(ids), PAGE):
            known = self._full.get((prefix, tuple(ids[end - PAGE : end])))
            if known is None:
                break
            page, prefix = known
            self._users[page] += 1
            self._unused.pop(page, None)
            found.append(page)
        return found, prefix

    def fill(self, page: int, prefix: int, ids: Sequence[int]) -> int:
        """Note that a page is full of some tokens after a prefix; return the number of the longer prefix."""
        key = (prefix, tuple(ids))
        if key not in self._full:
            self._prefixes += 1
            self._full[key] = (page, self._prefixes)
            self._keys[page] = key
        return self._full[key][1]

    def release(self, pages: Sequence[int]) -> None:
        """Take one user from each of some pages; the last of them is reused first."""
        for page in reversed(pages):
            self._users[page] -= 1
            if not self._users[page]:
                self._unused[page] = None
                self._unused.move_to_end(page, last=page in self._keys)
