"""`dst circuit`: a kept network becomes files that hold the same function."""

from pathlib import Path

import dst_lab
import torch
from dst_lab import data
from dst_lab.store import Store

from decoupled_st import circuits

LOGIC = ("run", "logic-gates", "--width", 160, "--steps", 12, "--evaluate-every", 6, "--threads", 1)


def the_run(task: str = "logic-gates") -> str:
    with Store.open(Path("dst.sqlite")) as store:
        return next(run.id for run in store.runs() if run.task == task)


def test_a_kept_network_becomes_a_circuit(cli) -> None:
    cli(*LOGIC, "--seeds", 1, "--keep")
    done = cli("circuit", "--out", "net.json", "--out", "net.v", "--testbench", "--images", 20)
    assert (done.code, done.err) == (0, "")
    assert "as trained:  320 gates, depth 2" in done.out
    assert "equal to the network on all 261 test images" in done.out
    assert {path.name for path in Path().glob("net*")} == {"net.json", "net.v", "net_tb.v"}
    circuit, network = circuits.load("net.json"), dst_lab.load("dst.sqlite", the_run())
    bits = torch.from_numpy(data.bits(data.load_levels("digits", 3).test.images, 3))
    assert torch.equal(circuit(bits), network(bits.float()).detach())
    assert len(circuit.gates) < 320
    assert (circuit.input_names[0], circuit.input_names[-1]) == (
        "channel0.row0.column0>0.25", "channel0.row7.column7>0.75",
    )  # fmt: skip
    lines = Path("images.txt").read_text().splitlines()
    assert [[int(digit) for digit in line] for line in lines] == bits[:20].long().tolist()
    winner = cli("circuit", the_run(), "--winner", "--as-trained", "--out", "net.json", "--images", 3)
    assert winner.code == 0
    assert "images.txt, 3 of 261 test images" in winner.out
    assert torch.equal(circuits.load("net.json")(bits), network(bits.float()).argmax(-1))


def test_no_file_is_written_twice(cli) -> None:
    cli(*LOGIC, "--seeds", 1, "--keep")
    for other in ("n_tb.v", Path("n_tb.v").absolute()):
        done = cli("circuit", "--out", "n.v", "--out", other, "--testbench")
        assert done.code == 2
        assert "n_tb.v would be written twice, with two contents: give one --out another name" in done.err
        assert not list(Path().glob("n*.v"))
    assert cli("circuit", "--out", "n.v", "--out", "n.v", "--testbench").code == 0


def test_only_its_own_images_are_replaced_unasked(cli) -> None:
    cli(*LOGIC, "--seeds", 1, "--keep")
    Path("mine").mkdir()
    images, words = Path("mine/images.txt"), ("circuit", "--out", "mine/n.v", "--images")
    assert cli(*words, 3).code == cli(*words, 5).code == 0
    five = images.read_text()
    assert five.count("\n") == 5
    assert cli(*words, 3).code == 0
    three = images.read_text()
    assert five.startswith(three)
    for mine in ("0110\n1011\n", "", five.replace("0", "1", 1), five + five, five[:-1]):
        images.write_text(mine)
        Path("mine/n.v").unlink(missing_ok=True)
        done = cli(*words, 3)
        assert done.code == 2
        assert "images.txt exists already, and is not the first test images of this network" in done.err
        assert "--overwrite" in done.err
        assert images.read_text() == mine
        assert not Path("mine/n.v").exists(), "nothing is written where one file may not be"
    assert cli(*words, 3, "--overwrite").code == 0
    assert images.read_text() == three


REFUSED = {
    "keeps 2 logic networks: give the id of one of ": ("circuit",),
    "holds no run 'nope'": ("circuit", "nope"),
    "is of the task stochastic-binary: a circuit is made of a logic-gates network": ("circuit", "BINARY"),
    "--images writes beside the first --out: give one": ("circuit", "LOGIC", "--images", 3),
    "--pipelined changes Verilog alone": ("circuit", "LOGIC", "--pipelined", "--out", "a.c"),
    "ends with one of .c, .v": ("circuit", "LOGIC", "--out", "a.txt"),
    "there is no folder 'no'": ("circuit", "LOGIC", "--out", "no/a.v"),
    "exists already, and is not a circuit made by `dst circuit`": ("circuit", "LOGIC", "--out", "notes.v"),
}


def test_sentences(cli) -> None:
    cli(*LOGIC, "--seeds", 2, "--keep")
    cli("run", "stochastic-binary", "--epochs", 1, "--hidden", "16,16", "--threads", 1, "--seeds", 1, "--keep")
    Path("notes.v").write_text("mine")
    before = sorted(path.name for path in Path().iterdir())
    ids = {"BINARY": the_run("stochastic-binary"), "LOGIC": the_run()}
    for message, words in REFUSED.items():
        done = cli(*(ids.get(str(word), word) for word in words))
        assert done.code == 2
        assert message in done.err
        assert done.out == "", "found before the work"
        assert sorted(path.name for path in Path().iterdir()) == before
    assert Path("notes.v").read_text() == "mine"
    cli("run", "polynomial", "--steps", 2, "--passes", 2, "--seeds", 1, "--store", "none.sqlite")
    assert "keeps no logic network: train one" in cli("circuit", "--store", "none.sqlite").err
