"""Downloads from a server of our own: whole, or not at all and in one clear sentence."""

import gzip
import hashlib
import io
import socket
import subprocess
import sys
import tarfile
import threading
import time

import numpy as np
import pytest
from dst_lab.data import DataError, load


@pytest.fixture
def published(tiny_mnist, server):
    """The tiny MNIST, on the server only."""
    tiny_mnist.register(address=server.address)
    server.answers.update({f"{name}.gz": gzip.compress(raw) for name, raw in tiny_mnist.raw.items()})
    return tiny_mnist


@pytest.fixture
def published_cifar(tiny_cifar, server):
    """The tiny CIFAR-10, on the server only."""
    tiny_cifar.register(address=server.address + "cifar-10-binary.tar.gz")
    server.answers["cifar-10-binary.tar.gz"] = tiny_cifar.archive()
    return tiny_cifar


def cut_short(content):
    def answer(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[: len(content) // 2])

    return answer


def without_length(content):
    def answer(handler):
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def files_under(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def assert_fails(name, root, *parts):
    with pytest.raises(DataError) as caught:
        load(name, root)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_missing_set_is_downloaded_into_the_folder_asked_for(published, tmp_path, capfd):
    root = tmp_path / "not" / "there" / "yet"
    dataset = load("mnist", root)
    assert np.array_equal(dataset.test.images, published.test)
    assert files_under(root) == sorted(f"mnist/{name}.gz" for name in published.raw)
    out, err = capfd.readouterr()
    assert out == ""
    assert "train-images-idx3-ubyte.gz" in err


@pytest.mark.parametrize("variable", [True, False])
def test_missing_set_is_downloaded_into_the_variable_or_the_cache(published, tmp_path, monkeypatch, variable):
    root = tmp_path / "cache" / "decoupled-st"
    if variable:
        root = tmp_path / "variable"
        monkeypatch.setenv("DST_DATA", str(root))
    load("mnist")
    assert files_under(tmp_path) == sorted(f"{root.relative_to(tmp_path)}/mnist/{name}.gz" for name in published.raw)


def test_second_load_asks_for_nothing(published, server, tmp_path):
    load("mnist", tmp_path)
    assert len(server.asked) == 4
    load("mnist", tmp_path)
    assert len(server.asked) == 4


def test_only_what_is_missing_is_downloaded(published, server, tmp_path):
    published.write(tmp_path)
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    load("mnist", tmp_path)
    assert server.asked == ["t10k-labels-idx1-ubyte.gz"]


def test_damaged_file_is_told_and_not_replaced(published, server, tmp_path):
    published.write(tmp_path)
    path = tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz"
    path.write_bytes(b"mine")
    assert_fails("mnist", tmp_path, f"{path} is damaged")
    assert path.read_bytes() == b"mine"
    assert server.asked == []


def test_answer_without_a_length_will_do(published, server, tmp_path):
    server.answers.update({name: without_length(content) for name, content in list(server.answers.items())})
    assert np.array_equal(load("mnist", tmp_path).test.images, published.test)


def test_archive_is_downloaded_and_unpacked(published_cifar, tmp_path):
    dataset = load("cifar10", tmp_path)
    assert np.array_equal(dataset.test.images, published_cifar.test)
    assert np.array_equal(np.concatenate([dataset.train.images, dataset.validation.images]), published_cifar.train)
    assert files_under(tmp_path) == sorted(f"cifar-10/cifar-10-batches-bin/{name}.bin" for name in published_cifar.raw)


def test_wrong_content_is_not_kept(published, server, tmp_path):
    name = "train-labels-idx1-ubyte"
    wrong = published.raw[name][:-1] + b"\x0b"
    server.answers[f"{name}.gz"] = gzip.compress(wrong)
    expected, found = (hashlib.sha256(raw).hexdigest() for raw in (published.raw[name], wrong))
    assert_fails(
        "mnist",
        tmp_path,
        f"could not fetch {name}.gz of mnist from {server.address}{name}.gz (expected {len(wrong)} bytes with ",
        f"sha256 {expected}, found sha256 {found})",
        f"put {', '.join(f'{each}.gz' for each in published.raw)} by hand into {tmp_path / 'mnist'}",
    )
    assert files_under(tmp_path) == ["mnist/train-images-idx3-ubyte.gz"]


def test_page_in_place_of_a_file_is_not_kept(published, server, tmp_path):
    server.answers["train-images-idx3-ubyte.gz"] = b"<html>log in to this network</html>"
    assert_fails("mnist", tmp_path, "found a corrupt gzip stream (Not a gzipped file")
    assert files_under(tmp_path) == []


def test_answer_cut_short_is_not_kept(published, server, tmp_path):
    name = "train-images-idx3-ubyte.gz"
    whole = server.answers[name]
    server.answers[name] = cut_short(whole)
    assert_fails("mnist", tmp_path, f"the connection ended after {len(whole) // 2} of {len(whole)} bytes", "by hand")
    assert files_under(tmp_path) == []


def test_answer_cut_short_without_a_length_is_not_kept(published, server, tmp_path):
    name = "train-images-idx3-ubyte.gz"
    server.answers[name] = without_length(server.answers[name][:-30])
    assert_fails("mnist", tmp_path, "found a gzip stream that ends early")
    assert files_under(tmp_path) == []


def test_absent_file_is_told(published, server, tmp_path):
    del server.answers["train-images-idx3-ubyte.gz"]
    assert_fails("mnist", tmp_path / "new", f"from {server.address}train-images-idx3-ubyte.gz (Not Found)")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("name", "by_hand"),
    [
        (
            "mnist",
            "put train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz, "
            "t10k-labels-idx1-ubyte.gz by hand into {}/mnist",
        ),
        (
            "cifar10",
            "put data_batch_1.bin, data_batch_2.bin, data_batch_3.bin, data_batch_4.bin, data_batch_5.bin, "
            "test_batch.bin by hand into {}/cifar-10/cifar-10-batches-bin",
        ),
    ],
)
def test_refused_connection_is_told(tiny_mnist, tiny_cifar, tmp_path, name, by_hand):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        tiny_mnist.register(address=address)
        tiny_cifar.register(address=address + "cifar-10-binary.tar.gz")
        assert_fails(name, tmp_path / "new", address, "Connection refused", by_hand.format(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_silent_server_is_given_up(published, server, tmp_path, monkeypatch):
    monkeypatch.setattr("dst_lab.data.download.SECONDS_OF_SILENCE", 0.2)
    done = threading.Event()
    server.answers["train-images-idx3-ubyte.gz"] = lambda _: done.wait(20)
    assert_fails("mnist", tmp_path, "(timed out)")
    done.set()
    assert files_under(tmp_path) == []


def test_folder_that_cannot_be_written_is_told(published, tmp_path):
    (tmp_path / "mnist").write_text("a file where the folder should be")
    assert_fails("mnist", tmp_path, "could not fetch train-images-idx3-ubyte.gz", "File exists")


def archive_of(members):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, raw in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(raw)
            tar.addfile(member, io.BytesIO(raw))
    return stream.getvalue()


@pytest.mark.parametrize(
    ("damage", "reason", "kept"),
    [
        (lambda whole, _: whole[: len(whole) // 2], "ended before the end-of-stream marker", None),
        (lambda *_: b"<html></html>", "not a gzip file", 0),
        (lambda *_: gzip.compress(b"x" * 5000), "invalid header", 0),
        (lambda *_: archive_of({"x/data_batch_1.bin": b"short"}), "found 5 bytes", 0),
        (
            lambda _, raw: archive_of({"../../data_batch_1.bin": raw["data_batch_1"]}),
            "the archive lacks data_batch_2",
            1,
        ),
    ],
)
def test_bad_archive_leaves_nothing_bad(published_cifar, server, tmp_path, damage, reason, kept):
    whole = server.answers["cifar-10-binary.tar.gz"]
    server.answers["cifar-10-binary.tar.gz"] = damage(whole, published_cifar.raw)
    root = tmp_path / "data"
    assert_fails("cifar10", root, f"could not fetch cifar10 from {server.address}cifar-10-binary.tar.gz", reason)
    names = files_under(tmp_path)
    assert kept is None or len(names) == kept
    for name in names:
        path = tmp_path / name
        assert path.parent == root / "cifar-10" / "cifar-10-batches-bin"
        assert path.read_bytes() == published_cifar.raw[path.stem]


KILLED = """
import sys
from dataclasses import replace
from dst_lab.data import load
from dst_lab.data.catalogue import SOURCES
SOURCES["mnist"] = replace(SOURCES["mnist"], address=sys.argv[1])
load("mnist", sys.argv[2])
"""


def test_killed_download_leaves_no_final_name(published, server, tmp_path):
    done = threading.Event()
    content = server.answers["train-images-idx3-ubyte.gz"]

    def half(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(10**7))
        handler.end_headers()
        handler.wfile.write(content * 1000)
        done.wait(60)

    server.answers["train-images-idx3-ubyte.gz"] = half
    child = subprocess.Popen([sys.executable, "-c", KILLED, server.address, str(tmp_path)], stderr=subprocess.DEVNULL)
    give_up = time.monotonic() + 60
    try:
        while not any((tmp_path / name).stat().st_size for name in files_under(tmp_path)):
            assert time.monotonic() < give_up, "the download never began"
            time.sleep(0.01)
    finally:
        child.kill()
        child.wait()
        done.set()
    assert not (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").exists()
    server.answers["train-images-idx3-ubyte.gz"] = content
    assert np.array_equal(load("mnist", tmp_path).test.images, published.test)
