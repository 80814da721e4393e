"""Packs whole documents into rows of a fixed length."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from corpus import Document
from vocab import IGNORE, Encoder

# Rows kept open while looking for documents that fill them.
OPEN_ROWS = 64


@dataclass
class Row:
    """Documents in a row. `docs` has the number of the document of each token."""

    ids: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    docs: list[int] = field(default_factory=list)


class Batch(NamedTuple):
    """Inputs, next-token labels, their weights in the loss, and document numbers, all [batch, n_tokens]."""

    ids: Tensor
    labels: Tensor
    weights: Tensor
    docs: Tensor


def rows(docs: Iterator[Document], encoder: Encoder, length: int) -> Iterator[Row]:
    """Rows of at most `length` tokens. No document is cut; longer ones are dropped."""
    open_rows: list[Row] = []
    for doc in docs:
        ids, labels, weights = encoder.document(doc)
        if len(ids) > length:
            continue
        fits = [row for row in open_rows if len(row.ids) + len(ids) <= length]
        if not fits:
            fits = [Row()]
            open_rows.append(fits[0])
        row = max(fits, key=lambda r: len(r.ids))
        row.docs += [row.docs[-1] + 1 if row.docs else 0] * len(ids)
        row.ids += ids
        row.labels += labels
        row.weights += weights
        if len(open_rows) > OPEN_ROWS:
            yield open_rows.pop(max(range(len(open_rows)), key=lambda i: len(open_rows[i].ids)))
    yield from open_rows


def tensors(batch: list[Row], length: int, pad: int) -> Batch:
    """Some rows as tensors; the label of a position is the token after it."""
    shape = (len(batch), length)
    out = Batch(torch.full(shape, pad), torch.full(shape, IGNORE), torch.zeros(shape), torch.full(shape, -1))
    for i, row in enumerate(batch):
        n = len(row.ids)
        out.ids[i, :n] = torch.tensor(row.ids)
        out.labels[i, : n - 1] = torch.tensor(row.labels[1:])
        out.weights[i, : n - 1] = torch.tensor(row.weights[1:])
        out.docs[i, :n] = torch.tensor(row.docs)
    return out


def batches(docs: Iterator[Document], encoder: Encoder, length: int, size: int, pad: int) -> Iterator[Batch]:
    """Batches of `size` rows; a last, smaller one is dropped."""
    batch = []
    for row in rows(docs, encoder, length):
        batch.append(row)
        if len(batch) == size:
            yield tensors(batch, length, pad)
            batch = []
