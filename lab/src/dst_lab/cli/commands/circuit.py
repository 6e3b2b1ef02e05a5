"""`dst circuit`: a kept logic network as a circuit, in files that C compilers and hardware tools take."""

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from decoupled_st import circuits
from decoupled_st.circuits import Circuit, write_images
from dst_lab import data
from dst_lab.cli.options import add_store, at_least, read_path
from dst_lab.cli.terminal import say
from dst_lab.data import DataError
from dst_lab.networks import load
from dst_lab.replace import check_target
from dst_lab.runs import CONFIGS
from dst_lab.store import Store, StoreError
from dst_lab.tasks.logic_gates import LogicGatesConfig

ENDINGS = (".c", ".v", ".aag", ".aig", ".json")
"""The formats that a circuit is written in."""


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "circuit",
        help="a kept logic network as C, Verilog, AIGER or JSON",
        description="Turn the logic gate network of a run that was trained with --keep into a circuit of its argmax "
        "gates, simplify it, compare it with the network on the test images, and write it.",
    )
    parser.add_argument("run", metavar="RUN", nargs="?", help="the id of a run (the only logic network that is kept)")
    add_store(parser)
    parser.add_argument(
        "--out",
        type=read_path,
        action="append",
        default=[],
        metavar="FILE",
        help=f"ends with one of {', '.join(ENDINGS)}; may be given several times",
    )
    parser.add_argument("--winner", action="store_true", help="end with the winning class instead of class counts")
    parser.add_argument("--as-trained", action="store_true", help="do not simplify")
    parser.add_argument("--pipelined", action="store_true", help="Verilog with registers after every level")
    parser.add_argument("--testbench", action="store_true", help="a testbench for the Verilog")
    parser.add_argument(
        "--images",
        type=at_least(int, 1),
        metavar="N",
        help="write the first N test images as images.txt next to the first FILE",
    )
    parser.add_argument("--data", help="folder with the data sets")
    parser.set_defaults(do=_circuit)


def _circuit(args: argparse.Namespace) -> int:
    options = _check(args)
    run, config = _kept_run(args.store, args.run)
    network = load(args.store, run)
    say(f"run:         {run}")
    test, names = None, None
    try:
        split = data.load_levels(config.dataset, config.thresholds, args.data).test
        bits = torch.from_numpy(data.bits(split.images, config.thresholds))
        test, names = (bits, torch.from_numpy(split.labels)), input_names(config.thresholds, split.images.shape[1:])
    except DataError as error:
        if args.images:
            raise
        say(f"not compared with the network, since the test images are not there: {error}")
    circuit = circuits.from_network(network, input_names=names)
    say(f"as trained:  {len(circuit.gates):,} gates, depth {circuit.depth}")
    if args.winner:
        circuit = circuit.winner()
        say(f"with winner: {len(circuit.gates):,} gates, depth {circuit.depth}")
    if not args.as_trained:
        circuit = circuit.simplify()
        removed = ", ".join(f"{rule} {count:,}" for rule, count in circuit.saved.items())
        say(f"simplified:  {len(circuit.gates):,} gates, depth {circuit.depth} ({removed})")
    if test is not None:
        _compare(circuit, network, *test)
    for out in args.out:
        circuit.write(out, **(options if out.suffix == ".v" else {}))
        testbench = f", {out.stem}_tb.v" if args.testbench and out.suffix == ".v" else ""
        say(f"written:     {out}{testbench}")
    if args.images and test is not None:
        text_file, chosen = args.out[0].with_name("images.txt"), test[0][: args.images]
        write_images(text_file, chosen)
        say(f"written:     {text_file}, {len(chosen):,} of {len(test[0]):,} test images")
    return 0


def _check(args: argparse.Namespace) -> dict[str, bool]:
    """Raise before the work what would keep its result from being written; the options of Verilog."""
    if args.images and not args.out:
        raise ValueError("--images writes next to the first --out: give one")
    asked = {"pipelined": args.pipelined, "testbench": args.testbench}
    options = {name: True for name, given in asked.items() if given}
    if options and not any(out.suffix == ".v" for out in args.out):
        verb = "changes" if len(options) == 1 else "change"
        raise ValueError(f"--{' and --'.join(options)} {verb} Verilog alone: give an --out that ends with .v")
    for out in args.out:
        if out.suffix not in ENDINGS:
            raise ValueError(f"a circuit's path ends with one of {', '.join(ENDINGS)}, got {str(out)!r}")
        check_target(out)
    return options


def _kept_run(path: Path, run: str | None) -> tuple[str, LogicGatesConfig]:
    """The id and config of the run that is asked for, or of the only one that can be."""
    with Store.open(path) as store:
        tasks, kept = {one.id: one.task for one in store.runs()}, store.kept()
        possible = [one for one in sorted(kept) if tasks[one] == LogicGatesConfig.task]
        shown = ", ".join(possible[:10]) + (f" and {len(possible) - 10} more" if len(possible) > 10 else "")
        if run is None and not possible:
            raise StoreError(
                f"{path} keeps no network of logic-gates: train one into it with `dst run logic-gates --keep`"
            )
        if run is None and len(possible) > 1:
            raise StoreError(f"{path} keeps {len(possible)} logic networks: give the id of one of {shown}")
        kept_run = store.find(run or possible[0])
    if kept_run.task != LogicGatesConfig.task:
        raise ValueError(
            f"run {kept_run.id} is of the task {kept_run.task}: a circuit is made of a logic-gates network"
        )
    config = CONFIGS[kept_run.task].from_dict(kept_run.config)
    assert isinstance(config, LogicGatesConfig)
    return kept_run.id, config


def input_names(thresholds: int, shape: tuple[int, ...]) -> list[str]:
    """What the bits of images of this shape mean, in the order of `data.bits`."""
    channels, rows, columns = (range(size) for size in shape)
    return [
        f"channel{c}.row{y}.column{x}>{k / (thresholds + 1):.4g}"
        for k in range(1, thresholds + 1)
        for c in channels
        for y in rows
        for x in columns
    ]


def _compare(circuit: Circuit, network: nn.Module, bits: Tensor, labels: Tensor) -> None:
    """Every number of every test image."""
    with torch.no_grad():
        scores = torch.cat([network(part.float()) for part in torch.split(bits, 512)])
    given = circuit(bits)
    want = scores.argmax(-1) if circuit.meaning == "winner" else scores
    if not torch.equal(given, want):
        different = int((given != want).reshape(len(bits), -1).any(-1).sum())
        raise RuntimeError(f"the circuit differs from the network on {different} of {len(bits)} test images")
    right = int((scores.argmax(-1) == labels).sum())
    say(f"compared:    equal to the network on all {len(bits):,} test images, {right / len(bits):.2%} of them right")
