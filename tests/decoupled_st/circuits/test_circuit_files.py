"""Circuits as files: what is written is read back, what is damaged is refused, nothing is half-written."""

import json

import pytest
import torch
from circuit_samples import bits, every_input, random_circuit, samples, stack

from decoupled_st.circuits import from_network, load, write_images


@pytest.mark.parametrize("ending", ["json", "aag", "aig"])
@pytest.mark.parametrize("name", samples(8))
def test_read_back(name: str, ending: str, tmp_path) -> None:
    circuit, x = samples(8)[name], every_input(8)
    circuit.write(tmp_path / f"net.{ending}")
    again = load(tmp_path / f"net.{ending}")
    assert torch.equal(again(x), circuit(x))
    assert again(x).dtype == circuit(x).dtype
    assert again.input_names == circuit.input_names
    assert (again.meaning, again.classes, again.tau) == (circuit.meaning, circuit.classes, circuit.tau)
    if ending == "json":
        assert torch.equal(again.gates, circuit.gates)
    assert [path.name for path in tmp_path.iterdir()] == [f"net.{ending}"]


def test_aiger_as_its_authors_write_it(tmp_path) -> None:
    """The half adder of the format's own description, and its ANDs in another order."""
    path = tmp_path / "half-adder.aag"
    head = "aag 7 2 0 2 3\n2\n4\n6\n12\n"
    for ands in ("6 13 15\n12 2 4\n14 3 5\n", "14 3 5\n6 13 15\n12 2 4\n"):
        path.write_text(head + ands + "i0 x\ni1 y\no0 s\no1 c\n")
        circuit = load(path)
        assert circuit.input_names == ("x", "y")
        assert circuit(every_input(2)).tolist() == [[0, 0], [1, 0], [1, 0], [0, 1]]
    for names in ("i0 a b\ni1 c\n", "i0 a\ni1 a\n"):  # which a circuit cannot have
        path.write_text(head + "6 13 15\n12 2 4\n14 3 5\n" + names)
        assert load(path).input_names == ("x0", "x1")
    path.write_text(head.replace("2 3\n", "2 3 0 0 0 0\n", 1) + "6 13 15\n12 2 4\n14 3 5\n")  # the header of AIGER 1.9
    assert load(path)(every_input(2)).tolist() == [[0, 0], [1, 0], [1, 0], [0, 1]]
    path.write_text("aag 1 1 0 3 0\n2\n0\n1\n3\n")  # constants and an inversion
    assert load(path)(every_input(1)).tolist() == [[0, 1, 1], [0, 1, 0]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "neither AIGER"),
        ("module x;", "neither AIGER"),
        ("{}", 'has no "format"'),
        ("{", "no circuit that can be read"),
        ('{"format": "decoupled-st circuit", "version": 2}', 'with "version": 1'),
        ("aag 3 2 0 1\n", "not enough values"),
        ("aag 3 2 1 1 0\n2\n4\n6 2\n6\n", "latches"),
        ("aag 3 2 0 1 1 0 0 1\n2\n4\n6\n1\n6 2 4\n", "latches or properties"),
        ("aag 2 2 0 1 1\n", "asks for 2 variables"),
        ("aag 3 2 0 1 1\n2\n4\n6\n6 2", "a line of 3 numbers was expected"),
        ("aag 3 2 0 1 1\n2\n4\n6\n6 2 x\n", "invalid literal"),
        ("aag 3 2 0 1 1\n2\n4\n6\n4 2 2\n", "each defined once"),
        ("aag 3 2 0 1 1\n2\n4\n9\n6 2 4\n", "literal 9 is used and not defined"),
        ("aag 4 2 0 1 2\n2\n4\n6\n6 8 2\n8 6 4\n", "in a cycle"),
        ("aag 3 2 0 1 1\n2\n4\n6\n6 6 4\n", "in a cycle"),
        ("aig 3 2 0 1 1\n6\n", "ANDs end too soon"),
        ("aig 3 2 0 1 1\n6\n\x00\x00", "sees what comes after it"),
        ("aag 1 1 0 1 0\n2\n2\nc\ndecoupled-st circuit {}\n", "no circuit that can be read"),
        ("aag 1 1 0 1 0\n2\n2\nc\ndecoupled-st circuit [\n", "no circuit that can be read"),
        ('{"a":' * 100_000, "no circuit that can be read"),
    ],
)
def test_damaged_files(text: str, message: str, tmp_path) -> None:
    path = tmp_path / "damaged"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        load(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gates", "0"),
        ("left", [0.5]),
        ("left", [9, 9]),
        ("outputs", [10**30]),
        ("outputs", [-1]),
        ("dtype", "Tensor"),
        ("dtype", "float8_e4m3fn"),
        ("tau", "one"),
        ("tau", 10**400),
        ("classes", 1.5),
        ("input_names", {"a b": 1}),
    ],
)
def test_damaged_json(field: str, value, tmp_path) -> None:
    path = tmp_path / "net.json"
    random_circuit(2, 1, 1, seed=0).write(path)
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {field: value}))
    with pytest.raises(ValueError, match="is no circuit that can be read"):
        load(path)


def test_a_cut_off_file_is_refused_wherever_it_ends(tmp_path) -> None:
    """All but the symbols at the end, which AIGER does without."""
    circuit = random_circuit(4, 12, 5, seed=2)
    for ending in ("json", "aag", "aig"):
        path = tmp_path / f"net.{ending}"
        circuit.write(path)
        whole = path.read_bytes()
        end = len(whole) - 3 if ending == "json" else whole.index(b"i0 ")
        for length in range(0, end, 3):
            path.write_bytes(whole[:length])
            with pytest.raises(ValueError, match="net"):
                load(path)


def test_nothing_is_half_written(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    circuit = from_network(stack(4, 6))
    for name in ("net.json", "net.c", "net.h"):
        (tmp_path / name).write_text("before")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    for name in ("net.json", "net.c"):
        with pytest.raises(OSError, match="cannot be written: No space left on device"):
            circuit.write(tmp_path / name)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(
        ("net.json", "net.c", "net.h"), "before"
    )


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("net.txt", {}, ValueError, r"ends with one of \.c, \.v, \.aag, \.aig, \.json"),
        ("missing/net.v", {}, FileNotFoundError, "there is no folder"),
        ("net.json", {"pipelined": True}, TypeError, "unexpected keyword argument 'pipelined'"),
    ],
)
def test_paths_and_options(name: str, options, error: type[Exception], message: str, tmp_path) -> None:
    with pytest.raises(error, match=message):
        from_network(stack(4, 6)).write(tmp_path / name, **options)
    assert not list(tmp_path.iterdir())


def test_images_as_text(tmp_path) -> None:
    write_images(tmp_path / "images.txt", torch.tensor([[0, 1, 1], [1, 0, 0]]))
    assert (tmp_path / "images.txt").read_text() == "011\n100\n"
    with pytest.raises(ValueError, match="bits must be 0 or 1"):
        write_images(tmp_path / "images.txt", torch.tensor([[2]]))
    with pytest.raises(ValueError, match=r"\[images, inputs\]"):
        write_images(tmp_path / "images.txt", bits(1, 3)[0])
