"""Compiled circuits give the same numbers for any number of images, and say so where there is no compiler."""

import multiprocessing
import os
import pickle

import pytest
import torch
from circuit_samples import bits, every_input, random_circuit, stack

from decoupled_st.circuits import compiled, from_network, load


@pytest.fixture(autouse=True)
def with_compiler(tool) -> None:
    tool("gcc")


@pytest.mark.parametrize("threads", [1, 3])
def test_any_number_of_images(threads: int) -> None:
    network = stack(70, 80, 60, classes=4)
    circuit = from_network(network)
    fast, simple = circuit.compile(threads=threads, strict=True), circuit.simplify().compile(threads=threads)
    assert fast.backend == "c"
    for images in (0, 1, 63, 64, 511, 512, 513, 1500):
        x = bits(images, 70)
        assert torch.equal(fast(x), network(x).detach())
        assert torch.equal(simple(x), network(x).detach())


@pytest.mark.parametrize(("inputs", "gates"), [(2, 300), (63, 300), (64, 300), (65, 300), (200, 300), (4, 0)])
def test_any_number_of_inputs_and_every_gate(inputs: int, gates: int) -> None:
    circuit, x = random_circuit(inputs, gates, 40, seed=inputs), bits(600, inputs)
    assert torch.equal(circuit.compile(strict=True)(x), circuit(x))


@pytest.mark.parametrize("group", [1, 2, 3, 7, 8, 9, 15, 16, 17, 40, 100])
def test_groups_of_any_size_are_counted(group: int) -> None:
    circuit = random_circuit(20, 60, 3 * group, seed=group).replace(meaning="scores", classes=3, tau=7.0)
    x = bits(700, 20)
    assert torch.equal(circuit.compile(strict=True)(x), circuit(x))
    everything = circuit.replace(outputs=torch.zeros(3 * group).long())
    assert torch.equal(everything.compile(strict=True)(torch.ones(5, 20)), torch.full((5, 3), group / 7.0))


def test_the_winner_and_arrays() -> None:
    circuit, x = from_network(stack(9, 20, 21, classes=7)).winner(), every_input(9)
    fast = circuit.compile(strict=True)
    assert torch.equal(fast(x), circuit(x))
    assert fast(x.numpy()).tolist() == circuit(x).tolist()
    for call in (fast, circuit):  # what argmax gives, and one_hot and take want
        assert call(x).dtype == call(x[:0]).dtype == torch.int64
        assert call(x.numpy()).dtype == "int64"
    assert "backend=c" in repr(fast)


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    network = stack(6, 8, classes=2)
    circuit, x = from_network(network), every_input(6)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "")
    with pytest.raises(compiled.CompilerError, match=r"there is no C compiler \(\$CC, cc, gcc and clang"):
        circuit.compile(strict=True)
    with pytest.warns(RuntimeWarning, match="runs in torch, which is slower"):
        slow = circuit.compile()
    assert slow.backend == "torch"
    assert torch.equal(slow(x), network(x).detach())


def test_a_compiler_that_is_not_there_or_fails(tmp_path) -> None:
    circuit = from_network(stack(6, 8))
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\nprintf '\\377 is no letter' >&2\nexit 1\n")
    broken.chmod(0o755)
    for compiler, message in (
        (str(broken), "is no letter"),
        ("no-such-cc", "there is no C compiler 'no-such-cc'"),
        ("gcc --no-such-option", "failed"),
    ):
        with pytest.raises(compiled.CompilerError, match=message):
            circuit.compile(compiler=compiler)
    with pytest.raises(ValueError, match="threads must be an integer of at least 1, got 0"):
        circuit.compile(threads=0)


def test_a_compiler_that_does_not_know_its_machine(tmp_path) -> None:
    """Without the processor's own instructions the numbers are the same."""
    wrapper = tmp_path / "older-cc"
    wrapper.write_text('#!/bin/sh\ncase "$*" in *-march=native*) echo unknown >&2; exit 1;; esac\nexec gcc "$@"\n')
    wrapper.chmod(0o755)
    circuit, x = from_network(stack(130, 90, 60, classes=3)), bits(1300, 130)
    assert torch.equal(circuit.compile(compiler=str(wrapper))(x), circuit(x))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_in_other_processes() -> None:
    """A fork, in which the threads of its parent are not, and what is pickled."""
    circuit, x = from_network(stack(20, 30, classes=3)), bits(2000, 20)
    fast = circuit.compile(threads=2, strict=True)
    want = fast(x)
    fork = multiprocessing.get_context("fork").Process(target=lambda: os._exit(not torch.equal(fast(x), want)))
    fork.start()
    fork.join(30)
    fork.kill()
    assert fork.exitcode == 0
    again = pickle.loads(pickle.dumps(fast))
    assert again.threads == 2
    assert torch.equal(again(x), want)


def test_torchs_default_device_changes_nothing(tmp_path) -> None:
    """Meta stands for CUDA: a circuit is made, simplified, run, compiled, written and read on the CPU."""
    network, x = stack(20, 30, 20, classes=4), bits(600, 20)
    want = network(x).detach()
    with torch.device("meta"):
        circuit = from_network(network)
        for one in (circuit, circuit.simplify()):
            assert torch.equal(one(x), want)
            assert one(x.tolist()).tolist() == want.tolist()
            assert torch.equal(one.compile(strict=True)(x), want)
            assert torch.equal(one.winner()(x), want.argmax(-1))
        for ending in ("json", "aag", "aig"):
            circuit.write(tmp_path / f"circuit.{ending}")
            assert torch.equal(load(tmp_path / f"circuit.{ending}")(x), want)
