"""A short form of numbers many of which are zero or repeat each other, exact to the bit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Places = NDArray[np.int64]


def pack(words: Words, links: Places) -> bytes:
    """
    Leaves out words that are zero and words that are equal to the one they are linked to. Which links are chosen
    decides about the size only: any words come back.

    :param words: Numbers, as 64-bit words, shape (n,).
    :param links: What each word is expected to be equal to, from :func:`resolve`; itself where nothing is known.
    :return: One bit per word, and the words that are left.
    """
    left = np.where(links == np.arange(len(words)), words, words ^ words[links])
    present = left != 0
    return np.packbits(present).tobytes() + left[present].tobytes()


def unpack(data: bytes, links: Places) -> Words:
    """
    :param data: What :func:`pack` returned.
    :param links: The same as there.
    :return: The words, shape (n,).
    :raises ValueError: if ``data`` is of another length than its bits say.
    """
    n = len(links)
    n_mask = (n + 7) // 8
    present = np.unpackbits(np.frombuffer(data, np.uint8, n_mask), count=n).view(np.bool_)
    n_bytes = n_mask + 8 * int(np.count_nonzero(present))
    if len(data) != n_bytes:
        raise ValueError(f"Packed words of {len(data)} bytes should have {n_bytes}")
    words = np.zeros(n, dtype=np.uint64)
    words[present] = np.frombuffer(data, np.uint64, offset=n_mask)
    return np.where(links == np.arange(n), words, words ^ words[links])


def resolve(links: Places) -> Places:
    """
    :param links: What each word is expected to be equal to, shape (n,), without cycles; itself where nothing is known.
    :return: The same with chains followed to their ends, so that no word is linked to one that is linked itself.
    """
    while not np.array_equal(links, further := links[links]):
        links = further
    return links
