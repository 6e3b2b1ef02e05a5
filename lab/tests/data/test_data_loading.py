"""Data sets by name: found, verified, split."""

import gzip

import numpy as np
import pytest
from dst_lab.data import DataError, inventory, load, load_levels
from dst_lab.data.sources import data_root


def assert_splits(dataset, tiny, validation):
    kept = len(tiny.train) - validation
    for split, images, labels in [
        (dataset.train, tiny.train[:kept], tiny.train_labels[:kept]),
        (dataset.validation, tiny.train[kept:], tiny.train_labels[kept:]),
        (dataset.test, tiny.test, tiny.test_labels),
    ]:
        assert np.array_equal(split.images, images)
        assert split.labels.tolist() == labels.tolist()
        assert len(split) == len(labels)
        assert (split.images.dtype, split.labels.dtype) == (np.uint8, np.int64)
        assert split.images.flags.writeable
        assert split.images.flags.c_contiguous


def test_mnist_keeps_its_last_training_images_for_validation(tiny_mnist, tmp_path):
    dataset = load("mnist", tiny_mnist.write(tmp_path / "data"))
    assert (dataset.name, dataset.classes) == ("mnist", 10)
    assert_splits(dataset, tiny_mnist, 3)


def test_cifar_keeps_its_last_training_images_for_validation(tiny_cifar, tmp_path):
    assert_splits(load("cifar10", tiny_cifar.write(tmp_path / "data")), tiny_cifar, 4)


def test_unpacked_idx_files_are_read(tiny_mnist, tmp_path):
    root = tiny_mnist.write(tmp_path / "data")
    for path in list((root / "mnist").iterdir()):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    assert_splits(load("mnist", root), tiny_mnist, 3)


def test_cifar_is_read_without_its_outer_folder(tiny_cifar, tmp_path):
    root = tiny_cifar.write(tmp_path / "data")
    (root / "cifar-10" / "cifar-10-batches-bin").rename(root / "cifar-10-batches-bin")
    assert_splits(load("cifar10", root), tiny_cifar, 4)


def test_folder_may_come_from_the_variable(tiny_mnist, tmp_path, monkeypatch):
    monkeypatch.setenv("DST_DATA", str(tiny_mnist.write(tmp_path / "data")))
    assert_splits(load("mnist"), tiny_mnist, 3)


def test_folder_may_be_the_cache(tiny_mnist, tmp_path):
    tiny_mnist.write(tmp_path / "cache" / "decoupled-st")
    assert_splits(load("mnist"), tiny_mnist, 3)


def test_flipped_byte_is_never_trained_on(tiny_cifar, tmp_path):
    root = tiny_cifar.write(tmp_path / "data")
    path = root / "cifar-10" / "cifar-10-batches-bin" / "data_batch_4.bin"
    raw = bytearray(path.read_bytes())
    raw[777] ^= 4
    path.write_bytes(raw)
    with pytest.raises(DataError, match=f"{path} is damaged: expected 9219 bytes with sha256 .*, found sha256 "):
        load("cifar10", root)


def test_wrong_magic_is_never_trained_on(tiny_mnist, tmp_path):
    # Registered with its wrong magic, so that the digest agrees and the reader itself must object.
    tiny_mnist.raw["t10k-images-idx3-ubyte"] = b"\0\0\x0d\3" + tiny_mnist.raw["t10k-images-idx3-ubyte"][4:]
    tiny_mnist.register()
    with pytest.raises(DataError, match="mnist t10k-images-idx3-ubyte is not an idx file"):
        load("mnist", tiny_mnist.write(tmp_path / "data"))


def test_digits_are_always_there_and_in_a_fixed_order():
    digits = load("digits")
    assert [len(split) for split in (digits.train, digits.validation, digits.test)] == [1280, 256, 261]
    assert digits.train.images.shape == (1280, 1, 8, 8)
    # The first ten of RandomState(0).permutation(1797) are 1081, 1707, 927, 713, 262, 182, 303, 895, 933, 1266.
    assert digits.train.labels[:10].tolist() == [2, 8, 2, 6, 6, 7, 1, 9, 8, 5]
    together = np.concatenate([split.images for split in (digits.train, digits.validation, digits.test)])
    assert together.max() == 255
    assert len(np.unique(together.reshape(1797, -1), axis=0)) == 1797


def test_a_whole_data_set_holds_nothing_out():
    digits, whole = load("digits"), load("digits-whole")
    assert whole.name == "digits-whole"
    assert np.array_equal(whole.train.images, np.concatenate([digits.train.images, digits.validation.images]))
    assert np.array_equal(whole.train.labels, np.concatenate([digits.train.labels, digits.validation.labels]))
    for split in (whole.validation, whole.test):
        assert np.array_equal(split.images, digits.test.images)
        assert np.array_equal(split.labels, digits.test.labels)


def test_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(DataError, match="no data set 'mist': choose one of digits, mnist, fashion-mnist, cifar10"):
        load("mist")
    for name in ("mist-whole", "digits-whole-whole", "-whole"):
        with pytest.raises(DataError, match=f"no data set '{name}': .* cifar10, or one with -whole after it"):
            load(name)
    with pytest.raises(DataError, match="no data set 'cifar'"):
        load_levels("cifar", 3)


def test_file_in_place_of_a_folder_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(DataError, match=r"notes\.txt is a file, expected a folder with the images of mnist"):
        load("mnist", tmp_path / "notes.txt")


def test_what_is_missing_is_named_with_where_it_belongs_and_how_to_bring_it(tiny_cifar, tiny_mnist, tmp_path):
    root = tiny_cifar.write(tmp_path / "data")
    folder = root / "cifar-10" / "cifar-10-batches-bin"
    (folder / "data_batch_2.bin").unlink()
    with pytest.raises(DataError) as caught:
        load("cifar10", root)
    said, _, command = str(caught.value).partition(", or bring it there by: ")
    assert said.startswith(f"cifar10 is not whole in {folder}: data_batch_2 missing; name another folder by --data")
    assert command.startswith(f"mkdir -p {folder} && curl https://")
    assert command.endswith(f"-C {folder}")
    with pytest.raises(DataError, match=r"mnist/\{train-images-idx3-ubyte,train-labels-idx1-ubyte,.*\}\.gz'"):
        load("mnist", tmp_path)
    assert inventory(root)[3][:3] == ("cifar10", str(folder), "missing")


def test_the_inventory_verifies(tiny_mnist, tmp_path):
    root = tiny_mnist.write(tmp_path / "data")
    assert [entry[2] for entry in inventory(root)] == ["complete", "complete", "missing", "missing"]
    (root / "mnist" / "train-labels-idx1-ubyte.gz").write_bytes(b"")
    assert "train-labels-idx1-ubyte.gz is damaged" in inventory(root)[1][2]


def test_the_folder_given_goes_before_the_variable_before_the_cache(tmp_path, monkeypatch):
    assert data_root() == tmp_path / "cache" / "decoupled-st"
    monkeypatch.setenv("DST_DATA", str(tmp_path / "variable"))
    assert data_root() == tmp_path / "variable"
    assert data_root(tmp_path / "argument") == tmp_path / "argument"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_root("~/data") == tmp_path / "data"
    monkeypatch.setenv("DST_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert data_root() == tmp_path / ".cache" / "decoupled-st"
