"""Circuits as Verilog: combinational, or with registers after every level.

Input i is `x[i]`. Bits and the winner's number leave as one vector; class scores leave as counts (tau is left to the
reader), class 0 in the lowest bits, added up by a tree of `+`, for which synthesis tools have their own adders.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from decoupled_st.circuits.circuit import Circuit, identifier

_EXPRESSIONS = (
    "1'b0", "{a} & {b}", "{a} & ~{b}", "{a}", "~{a} & {b}", "{b}", "{a} ^ {b}", "{a} | {b}",
    "~({a} | {b})", "~({a} ^ {b})", "~{b}", "{a} | ~{b}", "~{a}", "~{a} | {b}", "~({a} & {b})", "1'b1",
)  # fmt: skip


@dataclass(frozen=True)
class Ports:
    """The output and how many bits each of its numbers has."""

    name: str
    numbers: int
    bits: int

    @classmethod
    def of(cls, circuit: Circuit) -> "Ports":
        if circuit.meaning == "scores":
            return cls("scores", circuit.classes, (len(circuit.outputs) // circuit.classes).bit_length())
        return cls("winner" if circuit.meaning == "winner" else "y", 1, len(circuit.outputs))

    @property
    def width(self) -> int:
        return self.numbers * self.bits


def write(circuit: Circuit, stem: str, pipelined: bool = False, testbench: bool = False) -> dict[str, str]:
    """`.v`, and `_tb.v` where a testbench is asked for."""
    name, ports = identifier(stem), Ports.of(circuit)
    body = _Body(circuit, ports, pipelined)
    clock = "    input wire clk,\n" if pipelined else ""
    head = [
        f"// decoupled-st circuit: {circuit!r}",
        *([f"// {body.latency} clocks from x to {ports.name}"] if pipelined else []),
        f"module {name} (\n{clock}    input wire [{circuit.inputs - 1}:0] x,",
        f"    output {'reg' if body.latency else 'wire'} [{ports.width - 1}:0] {ports.name}\n);",
        *(f"    // x[{i}] is {shown}" for i, shown in enumerate(circuit.input_names) if shown != f"x{i}"),
    ]
    files = {f"{stem}.v": "\n".join([*head, *body.lines(), "endmodule"]) + "\n"}
    if testbench:
        files[f"{stem}_tb.v"] = _testbench(circuit, name, ports, body.latency if pipelined else None)
    return files


def latency(circuit: Circuit) -> int:
    """Clocks from the input of the pipelined circuit to its output."""
    if circuit.meaning == "scores":
        adders = (len(circuit.outputs) // circuit.classes - 1).bit_length()
        return circuit.depth + max(adders, 1)
    return circuit.depth + 1 if circuit.depth else 0


class _Body:
    """A wire for every gate that an output depends on. Pipelined, a gate of level k is registered at clock k instead,
    and again at each clock after it until its last use."""

    def __init__(self, circuit: Circuit, ports: Ports, pipelined: bool) -> None:
        self.circuit, self.ports, self.pipelined = circuit, ports, pipelined
        self.levels, self.depth = circuit.levels.tolist(), circuit.depth
        self.latency = latency(circuit) if pipelined else 0
        self.declared = list[str]()
        self.assigned: list[list[str]] = [[] for _ in range(self.latency + 1)]  # at each clock

    def lines(self) -> Iterator[str]:
        circuit = self.circuit
        needed = self._last_clocks()
        for node in range(circuit.inputs):
            self._delay(node, needed[node])
        triples = zip(circuit.gates.tolist(), circuit.left.tolist(), circuit.right.tolist(), strict=True)
        for node, (gate, a, b) in enumerate(triples, circuit.inputs):
            clock = self.levels[node]
            if needed[node] >= clock:
                value = _EXPRESSIONS[gate].format(a=self._node(a, clock - 1), b=self._node(b, clock - 1))
                self._define(clock, f"g{node}", value)
                self._delay(node, needed[node])
        if circuit.meaning == "scores":
            self._sums()
        else:
            shown = ", ".join(self._node(node, self.depth) for node in reversed(circuit.outputs.tolist()))
            self._output(self.ports.name, f"{{{shown}}}")
        yield from self.declared
        for assigned in self.assigned[1:]:
            if assigned:
                yield from ("    always @(posedge clk) begin", *assigned, "    end")

    def _node(self, node: int, clock: int) -> str:
        """The node's value as it is after that clock."""
        own, late = ("x" if node < self.circuit.inputs else "g"), clock - self.levels[node]
        if self.pipelined and late:
            return f"{own}{node}_d{late}"
        return f"x[{node}]" if own == "x" else f"g{node}"

    def _define(self, clock: int, name: str, value: str, width: int = 1) -> None:
        span = f"[{width - 1}:0] " if width > 1 else ""
        if self.pipelined:
            self.declared.append(f"    reg {span}{name};")
            self.assigned[clock].append(f"        {name} <= {value};")
        else:
            self.declared.append(f"    wire {span}{name} = {value};")

    def _output(self, target: str, value: str) -> None:
        if self.latency:
            self.assigned[self.latency].append(f"        {target} <= {value};")
        else:
            self.declared.append(f"    assign {target} = {value};")

    def _last_clocks(self) -> list[int]:
        """The last clock after which each node is seen; -1 where no output depends on it."""
        needed = [-1] * len(self.levels)
        for node in self.circuit.outputs.tolist():
            needed[node] = self.depth
        left, right = self.circuit.left.tolist(), self.circuit.right.tolist()
        for place in range(len(left) - 1, -1, -1):
            own = place + self.circuit.inputs
            if needed[own] >= 0:
                for node in (left[place], right[place]):
                    needed[node] = max(needed[node], self.levels[own] - 1)
        return needed

    def _delay(self, node: int, last: int) -> None:
        for clock in range(self.levels[node] + 1, last + 1 if self.pipelined else 0):
            self._define(clock, self._node(node, clock), self._node(node, clock - 1))

    def _sums(self) -> None:
        """A tree of adders per class, all of one depth."""
        for c, group in enumerate(self.circuit.outputs.reshape(self.circuit.classes, -1).tolist()):
            terms, clock = [(self._node(node, self.depth), 1) for node in group], self.depth
            while len(terms) > 2:
                clock, sums = clock + 1, []
                for i in range(0, len(terms), 2):
                    pair = terms[i : i + 2]
                    width = max(width for _, width in pair) + len(pair) - 1
                    sums.append((f"s{c}_{clock}_{i // 2}", width))
                    self._define(clock, sums[-1][0], " + ".join(name for name, _ in pair), width)
                terms = sums
            total = " + ".join(name for name, _ in terms)
            self._output(f"scores[{c * self.ports.bits} +: {self.ports.bits}]", total)


def _testbench(circuit: Circuit, name: str, ports: Ports, latency: int | None) -> str:
    """Reads images.txt (see `write_images`), prints the numbers of each image on a line, as the C program does.

    A pipeline gets a new image at every clock.
    """
    return _TESTBENCH.format(
        name=name,
        inputs=circuit.inputs - 1,
        width=ports.width - 1,
        output=ports.name,
        prints=prints(circuit, ports),
        read=READ.format(name=name, inputs=circuit.inputs - 1),
        clock=".clk(clk), " if latency is not None else "",
        latency=latency or 1,
    )


def prints(circuit: Circuit, ports: Ports) -> str:
    """The lines of a testbench that print an image's numbers."""
    shown = [f"{ports.name}[{i * ports.bits} +: {ports.bits}]" for i in range(ports.numbers)]
    if circuit.meaning == "bits":
        shown = [f"y[{i}]" for i in range(ports.width)]
    ends = [" "] * (len(shown) - 1) + ["\\n"]
    return "\n".join(f'            $write("%0d{end}", {value});' for value, end in zip(shown, ends, strict=True))


READ = """    // The next image into x, one digit per input; afterwards, at is how many there were.
    task next;
        begin
            at = 0;
            symbol = $fgetc(file);
            while (symbol == 10 || symbol == 13)  // the ends of lines
                symbol = $fgetc(file);
            while (symbol == "0" || symbol == "1") begin
                x[at] = symbol == "1";
                at = at + 1;
                symbol = $fgetc(file);
            end
        end
    endtask
    task close;
        begin
            if (at != 0 || symbol != -1)
                $display("{name}: an image is a line of %0d digits, 0 or 1; here reading ended", {inputs} + 1);
            $finish;
        end
    endtask"""
"""How a testbench reads its images: tasks that take the next one from the file, and end the simulation."""

_TESTBENCH = """// Testbench of a decoupled-st circuit: reads images from images.txt and prints their numbers.
module {name}_tb;
    reg clk = 0;
    reg [{inputs}:0] x;
    wire [{width}:0] {output};
    integer file, symbol, at, images = 0, clocks = 0;
    {name} dut ({clock}.x(x), .{output}({output}));
    task step;
        begin
            #1 clk = 1;
            #1 clk = 0;
            clocks = clocks + 1;
            if (clocks >= {latency}) begin
{prints}
            end
        end
    endtask
{read}
    initial begin
        file = $fopen("images.txt", "r");
        next;
        while (at == {inputs} + 1) begin
            images = images + 1;
            step;
            next;
        end
        while (images > 0 && clocks < images + {latency} - 1)
            step;
        close;
    end
endmodule
"""
