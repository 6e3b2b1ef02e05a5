import numpy as np
import pytest
from dst_lab.store.contents import blob


def _same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


ARRAYS = {
    "noise": np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32),
    "special": np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45, 3.4e38], np.float32),
    "payload": np.array([0x7FC12345, 0xFF800001, 0x7F800001], np.uint32).view(np.float32),
    "double": np.array([0.1, np.pi, np.nan, -np.inf]),
    "half": np.array([[0.5], [65504]], np.float16),
    "flags": np.array([True, False, True]),
    "bytes": np.arange(256, dtype=np.uint8).reshape(2, 2, 64),
    "wide": np.array([2**63 - 1, -(2**63), 0]),
    "range": np.arange(390, 39_001, 390),
    "falling": np.arange(5, -5, -3),
    "uneven": np.array([1, 2, 4]),
    "one": np.array([7]),
    "none": np.empty((0, 4), np.float32),
    "scalar": np.array(1.5, np.float32),
    "strided": np.arange(24, dtype=np.float32).reshape(4, 6)[::2, ::3],
    "transposed": np.arange(6, dtype=np.int16).reshape(2, 3).T,
}


@pytest.mark.parametrize("name", ARRAYS)
def test_every_array_comes_back_bit_for_bit(name):
    back = blob.unpack(blob.pack({name: ARRAYS[name]}))
    assert list(back) == [name]
    assert _same(back[name], ARRAYS[name])


def test_many_arrays_keep_their_names_and_order():
    back = blob.unpack(blob.pack(ARRAYS))
    assert list(back) == list(ARRAYS)
    assert all(_same(back[name], ARRAYS[name]) for name in ARRAYS)


def test_big_endian_arrays_come_back_as_the_same_numbers():
    given = np.array([1.5, -2.25], ">f4")
    back = blob.unpack(blob.pack({"x": given}))["x"]
    assert back.dtype == np.dtype("<f4")
    assert back.tolist() == [1.5, -2.25]


def test_nothing_packs_to_nothing():
    assert blob.unpack(blob.pack({})) == {}


def test_an_even_range_takes_no_room():
    short, long = np.arange(10) * 390, np.arange(100_000) * 390
    assert len(blob.pack({"x": long})) <= len(blob.pack({"x": short})) + 8


def test_objects_are_refused():
    with pytest.raises(ValueError, match="'x' has dtype object"):
        blob.pack({"x": np.array([{}, []], dtype=object)})


def test_any_flipped_bit_is_found():
    whole = blob.pack({"x": ARRAYS["noise"]})
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << (position % 8)
        with pytest.raises(ValueError, match=r"checksum|begins with|version"):
            blob.unpack(bytes(damaged))


@pytest.mark.parametrize("length", [0, 3, 7, 8, 20])
def test_a_blob_cut_short_is_found(length):
    with pytest.raises(ValueError, match=r"too few|checksum"):
        blob.unpack(blob.pack({"x": ARRAYS["noise"]})[:length])
