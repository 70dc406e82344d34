"""What TensorStore keeps of the blocks that it is given, until they are committed."""

import numpy as np
import pytest
import tensorstore as ts

from surgery_cli.store.orbax.contexts import new_context
from surgery_cli.store.write.array_access import open_for_writing, store_block

SHAPE = (8, 6)
CODECS = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "zstd"}]


def _document(zarr: int, chunk: tuple[int, ...], shape: tuple[int, ...] = SHAPE) -> dict:
    if zarr == 2:
        like = {"zarr_format": 2, "compressor": {"id": "zstd", "level": 1}, "filters": None}
        return {
            **like,
            "shape": shape,
            "chunks": chunk,
            "dtype": "<f4",
            "order": "C",
            "fill_value": None,
        }
    grid = {"name": "regular", "configuration": {"chunk_shape": chunk}}
    like = {"zarr_format": 3, "node_type": "array", "data_type": "float32", "fill_value": 0}
    return {**like, "shape": shape, "chunk_grid": grid, "codecs": CODECS}


@pytest.mark.parametrize("zarr", [2, 3])
@pytest.mark.parametrize(
    ("chunk", "is_copied"),
    [
        ((8, 2), True),
        ((4, 2), True),
        ((3, 4), True),
        ((2, 6), False),
        ((8, 6), False),
        ((1, 2), False),
    ],
)
def test_a_block_is_copied_once_where_elements_of_a_chunk_lie_apart_in_it(
    zarr: int, chunk: tuple[int, int], is_copied: bool
) -> None:
    context = new_context()
    kvstore = ts.KvStore.open("memory://", context=context).result()
    transaction = ts.Transaction(atomic=True)
    document = _document(zarr, chunk)
    array = open_for_writing(zarr, kvstore, document, context, create=True, transaction=transaction)
    values = np.arange(48, dtype=np.float32).reshape(SHAPE)
    meant = values.copy()
    store_block(array, tuple(slice(0, n) for n in SHAPE), values)
    values[:] = -1  # nobody may do so; it shows which of the two is encoded
    transaction.commit_async().result()
    driver = "zarr" if zarr == 2 else "zarr3"
    stored = ts.open({"driver": driver}, kvstore=kvstore, context=context, open=True).result()
    expected = meant if is_copied else values
    np.testing.assert_array_equal(stored.read().result(), expected)


@pytest.mark.parametrize("zarr", [2, 3])
@pytest.mark.parametrize(("shape", "chunk"), [((), ()), ((0, 3), (1, 3)), ((5,), (5,))], ids=str)
def test_a_block_of_any_number_of_axes_is_written(
    zarr: int, shape: tuple[int, ...], chunk: tuple[int, ...]
) -> None:
    """TensorStore knows no chunks of an array without axes."""
    context = new_context()
    kvstore = ts.KvStore.open("memory://", context=context).result()
    document = _document(zarr, chunk, shape)
    array = open_for_writing(zarr, kvstore, document, context, create=True, transaction=None)
    store_block(array, tuple(slice(0, n) for n in shape), np.full(shape, 7, np.float32))
    np.testing.assert_array_equal(array.read().result(), np.full(shape, 7, np.float32))
