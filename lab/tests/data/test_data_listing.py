"""What `dst data` lists."""

import pytest
from dst_lab.data import Entry, inventory, load, prepare


def by_name(folder=None):
    return {entry.name: entry for entry in inventory(folder)}


def test_empty_folder_has_digits_only(tmp_path):
    listed = by_name(tmp_path / "data")
    assert list(listed) == ["digits", "mnist", "fashion-mnist", "cifar10"]
    assert listed["digits"] == Entry("digits", "embedded", "complete", 1797 * 65)
    assert listed["mnist"] == Entry("mnist", str(tmp_path / "data" / "mnist"), "missing", 0)
    assert listed["cifar10"].where == str(tmp_path / "data" / "cifar-10" / "cifar-10-batches-bin")
    assert not (tmp_path / "data").exists()


def test_whole_sets_are_listed_with_their_size(tiny_mnist, tiny_cifar, tmp_path, monkeypatch):
    root = tiny_cifar.write(tiny_mnist.write(tmp_path / "data"))
    monkeypatch.setenv("DST_DATA", str(root))
    listed = by_name()
    on_disk = sum(path.stat().st_size for path in (root / "mnist").iterdir())
    assert listed["mnist"] == Entry("mnist", str(root / "mnist"), "complete", on_disk)
    batches = root / "cifar-10" / "cifar-10-batches-bin"
    assert listed["cifar10"] == Entry("cifar10", str(batches), "complete", 18 * 3073)


def test_set_that_lacks_a_file_is_missing(tiny_cifar, tmp_path):
    root = tiny_cifar.write(tmp_path / "data")
    (root / "cifar-10" / "cifar-10-batches-bin" / "test_batch.bin").unlink()
    entry = by_name(root)["cifar10"]
    assert (entry.state, entry.size) == ("missing", 15 * 3073)


def test_damage_is_listed_with_its_reason(tiny_cifar, tmp_path):
    root = tiny_cifar.write(tmp_path / "data")
    path = root / "cifar-10" / "cifar-10-batches-bin" / "data_batch_2.bin"
    path.write_bytes(path.read_bytes()[:-1])
    (path.parent / "test_batch.bin").unlink()
    sha256 = tiny_cifar.source.files[1].sha256
    expected = f"damaged: data_batch_2.bin: expected 9219 bytes with sha256 {sha256}, found 9218 bytes"
    assert by_name(root)["cifar10"].state == expected


def test_prepared_file_is_listed(tmp_path):
    path = tmp_path / "digits.levels"
    prepare(load("digits"), 3, path)
    entry = Entry("digits, levels of 3 thresholds", str(path), "complete", path.stat().st_size)
    assert inventory(path) == [Entry("digits", "embedded", "complete", 1797 * 65), entry]


@pytest.mark.parametrize(
    ("damage", "name", "reason"),
    [
        (lambda raw: raw[:-9], "digits, levels of 3 thresholds", "found a stream that ends"),
        (lambda raw: b"x" + raw, "levels", "is not a file of prepared levels"),
        (lambda raw: raw.replace(b"{", b"[", 1), "levels", "expected a header in JSON"),
    ],
)
def test_damaged_prepared_file_is_listed(tmp_path, damage, name, reason):
    path = tmp_path / "digits.levels"
    prepare(load("digits"), 3, path)
    path.write_bytes(damage(path.read_bytes()))
    entry = inventory(path)[1]
    assert entry.name == name
    assert entry.state.startswith("damaged: ")
    assert reason in entry.state
