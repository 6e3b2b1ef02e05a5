"""A file that is not what it should be is never read; a file is never half written."""

import gzip
import hashlib

import pytest
from dst_lab.data import DataError
from dst_lab.data.sources import File, unpacked

RAW = bytes(range(256)) * 40
FILE = File("values", len(RAW), hashlib.sha256(RAW).hexdigest())
FLIPPED = RAW[:5000] + bytes((RAW[5000] ^ 1,)) + RAW[5001:]


def corrupt_crc() -> bytes:
    packed = bytearray(gzip.compress(RAW))
    packed[-8] ^= 1
    return bytes(packed)


def corrupt_stream() -> bytes:
    packed = bytearray(gzip.compress(RAW))
    packed[10] = 0xFF  # the first byte after the header: a block of a type that does not exist
    return bytes(packed)


@pytest.mark.parametrize(("name", "content"), [("values", RAW), ("values.gz", gzip.compress(RAW))])
def test_whole_file_is_returned_unpacked(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert unpacked(tmp_path / name, FILE) == RAW


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("values.gz", gzip.compress(RAW)[:-20], "a gzip stream that ends early"),
        ("values.gz", gzip.compress(RAW)[:4], "a gzip stream that ends early"),
        ("values.gz", corrupt_crc(), "a corrupt gzip stream (CRC check failed"),
        ("values.gz", corrupt_stream(), "a corrupt gzip stream (Error -3"),
        ("values.gz", RAW, "a corrupt gzip stream (Not a gzipped file"),
        ("values.gz", gzip.compress(RAW[:-1]), f"{len(RAW) - 1} bytes"),
        ("values.gz", gzip.compress(RAW + b"x"), f"more than {len(RAW)} bytes"),
        ("values.gz", gzip.compress(FLIPPED), f"sha256 {hashlib.sha256(FLIPPED).hexdigest()}"),
        ("values", RAW[:100], "100 bytes"),
        ("values", b"", "0 bytes"),
        ("values", RAW + b"x", f"more than {len(RAW)} bytes"),
        ("values", FLIPPED, f"sha256 {hashlib.sha256(FLIPPED).hexdigest()}"),
    ],
)
def test_damage_is_named_with_what_was_expected_and_found(tmp_path, name, content, found):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        unpacked(path, FILE)
    start = f"{path} is damaged: expected {len(RAW)} bytes with sha256 {FILE.sha256}, found {found}"
    assert str(caught.value).startswith(start)
    assert str(caught.value).endswith("; delete it and download it again")


def test_unreadable_file_is_named(tmp_path):
    with pytest.raises(DataError, match=f"could not read {tmp_path}: Is a directory"):
        unpacked(tmp_path, FILE)
