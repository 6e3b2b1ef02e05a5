"""Convolutional networks as Verilog that takes one pixel per clock.

A layer keeps the last rows of its input in a shift register, from which its window reads; its trees stand there once,
simplified. Outside the image the window reads 0, so the pixels of the next image may follow at once. What comes after
the convolutions is a pipeline that takes a whole image at a clock.
"""

from collections.abc import Mapping, Sequence

from decoupled_st.circuits.circuit import Circuit, identifier
from decoupled_st.circuits.formats import verilog
from decoupled_st.circuits.network import Layer

_MODULES = """
// The windows of an image whose pixels come row by row; `fire` where `taps` are one, by channel, row and column.
module {name}_window #(parameter C = 1, H = 1, W = 1, K = 1, P = 0) (
    input wire clk, input wire rst, input wire valid, input wire [C-1:0] x, output wire fire,
    output wire [C*K*K-1:0] taps
);
    localparam BEHIND = (K - 1 - P) * (W + 1), KEPT = (K - 1) * W + K;
    reg [C*KEPT-1:0] line;  // the last pixel in the lowest bits
    reg [$clog2(BEHIND + 1):0] waiting;
    reg [$clog2(H + K):0] i;  // where the window is
    reg [$clog2(W + K):0] j;
    reg moved;
    always @(posedge clk) begin
        moved <= valid && waiting == 0 && !rst;
        if (valid) line <= (line << C) | x;
        if (rst) begin
            waiting <= BEHIND;
            i <= H - 1;
            j <= W - 1;
        end else if (valid) begin
            if (waiting != 0) waiting <= waiting - 1'b1;
            else begin
                j <= j == W - 1 ? 0 : j + 1'b1;
                if (j == W - 1) i <= i == H - 1 ? 0 : i + 1'b1;
            end
        end
    end
    assign fire = moved && i < H + 2 * P - K + 1 && j < W + 2 * P - K + 1;
    genvar r, s, c;
    generate
        for (r = 0; r < K; r = r + 1) begin : row
            for (s = 0; s < K; s = s + 1) begin : column
                wire inside = i + r >= P && i + r < H + P && j + s >= P && j + s < W + P;
                for (c = 0; c < C; c = c + 1) begin : channel
                    assign taps[(c * K + r) * K + s] = inside & line[((K - 1 - r) * W + K - 1 - s) * C + c];
                end
            end
        end
    endgenerate
endmodule

// The OR of squares of S x S of what comes row by row, Q in a row.
module {name}_pool #(parameter C = 1, S = 1, Q = 1) (
    input wire clk, input wire rst, input wire valid, input wire [C-1:0] x, output reg done, output reg [C-1:0] y
);
    reg [C-1:0] before;  // of this square's row
    reg [C*(Q/S)-1:0] above;  // the squares' rows so far, the next square's in the highest bits
    reg [$clog2(S):0] r, s;
    reg [$clog2(Q):0] j;
    wire [C-1:0] across = (S == 1 || s == 0 ? {{C{{1'b0}}}} : before) | x;
    wire [C-1:0] all = (S == 1 || r == 0 ? {{C{{1'b0}}}} : above[C*(Q/S)-1 -: C]) | across;
    always @(posedge clk) begin
        done <= valid && s == S - 1 && r == S - 1 && !rst;
        if (rst) begin
            r <= 0;
            s <= 0;
            j <= 0;
        end else if (valid) begin
            before <= across;
            y <= all;
            if (s == S - 1) above <= (above << C) | all;
            s <= s == S - 1 ? 0 : s + 1'b1;
            j <= j == Q - 1 ? 0 : j + 1'b1;
            if (j == Q - 1) r <= r == S - 1 ? 0 : r + 1'b1;
        end
    end
endmodule

// N pixels as one image, by channel, row and column.
module {name}_gather #(parameter C = 1, N = 1) (
    input wire clk, input wire rst, input wire valid, input wire [C-1:0] x, output reg done, output reg [C*N-1:0] y
);
    reg [$clog2(N):0] n;
    integer c;
    always @(posedge clk) begin
        done <= valid && n == N - 1 && !rst;
        if (rst) n <= 0;
        else if (valid) n <= n == N - 1 ? 0 : n + 1'b1;
        if (valid) for (c = 0; c < C; c = c + 1) y[c*N +: N] <= (y[c*N +: N] >> 1) | ({{N{{x[c]}}}} << (N - 1));
    end
endmodule
"""

_TESTBENCH = """// Testbench of a decoupled-st circuit: reads images from images.txt and prints their numbers.
module {name}_tb;
    reg clk = 0, rst = 1, valid = 0;
    reg [{inputs}:0] x;
    reg [{channels}:0] pixel;
    wire done;
    wire [{width}:0] {output};
    integer file, symbol, at, n, c, images = 0, shown = 0;
    {name} dut (.clk(clk), .rst(rst), .valid(valid), .x(pixel), .done(done), .{output}({output}));
    task step;
        begin
            #1 clk = 1;
            #1 clk = 0;
            if (done && shown < images) begin
                shown = shown + 1;
{prints}
            end
        end
    endtask
    task send;
        for (n = 0; n < {size}; n = n + 1) begin
            for (c = 0; c <= {channels}; c = c + 1)
                pixel[c] = x[c * {size} + n];
            step;
        end
    endtask
{read}
    initial begin
        file = $fopen("images.txt", "r");
        step;
        rst = 0;
        valid = 1;
        next;
        while (at == {inputs} + 1) begin
            images = images + 1;
            send;
            next;
        end
        x = 0;
        while (shown < images)  // the last images leave as others come in
            send;
        close;
    end
endmodule
"""


def write(
    shown: str,
    convolutions: Sequence[tuple[Layer, Circuit]],
    head: Circuit,
    stem: str,
    testbench: bool = False,
) -> Mapping[str, str]:
    """`.v`, and `_tb.v` where a testbench is asked for.

    Args:
        shown: a line that describes the network.
        convolutions: each with its trees at one window, whose places are their inputs.
        head: what follows; its inputs are the last convolution's channels, rows and columns.
        stem: of the file's name.
    """
    name, ports = identifier(stem), verilog.Ports.of(head)
    first = convolutions[0][0]
    channels, pixels = first.channels, first.height * first.width
    parts = [_MODULES.format(name=name)]
    lines, valid, x = [], "valid", "x"
    for at, (layer, trees) in enumerate(convolutions):
        parts += verilog.write(trees, f"{stem}_trees{at}").values()
        C, D, H, W = layer.channels, len(trees.outputs), layer.height, layer.width
        K, P, S = layer.kernel, layer.padding, layer.pool
        lines += [
            f"    wire fire{at}, done{at};",
            f"    wire [{C * K * K - 1}:0] taps{at};",
            f"    wire [{D - 1}:0] y{at}, z{at};",
            f"    {name}_window #(.C({C}), .H({H}), .W({W}), .K({K}), .P({P})) window{at} "
            f"(clk, rst, {valid}, {x}, fire{at}, taps{at});",
            f"    {identifier(stem)}_trees{at} trees{at} (.x(taps{at}), .y(y{at}));",
            f"    {name}_pool #(.C({D}), .S({S}), .Q({W + 2 * P - K + 1})) pool{at} "
            f"(clk, rst, fire{at}, y{at}, done{at}, z{at});",
        ]
        valid, x = f"done{at}", f"z{at}"
    [body] = verilog.write(head, f"{stem}_head", pipelined=True).values()
    latency = verilog.latency(head)
    lines += [
        "    wire whole;",
        f"    wire [{head.inputs - 1}:0] image;",
        f"    {name}_gather #(.C({D}), .N({head.inputs // D})) gather (clk, rst, {valid}, {x}, whole, image);",
        f"    {name}_head head (.clk(clk), .x(image), .{ports.name}({ports.name}));",
        f"    reg [{latency}:0] on;",
        "    always @(posedge clk) on <= rst ? 0 : {on, whole};",
        f"    assign done = {f'on[{latency - 1}]' if latency else 'whole'};",
    ]
    top = [
        f"// decoupled-st circuit: {shown}",
        f"// One pixel per clock in which `valid` is 1, row by row. An image is {first.height} x {first.width}; the",
        "// next may follow at once. `done` is 1 for the clock in which an image's numbers are out; those of the last",
        "// image come as pixels of another go in. Begin with a clock in which `rst` is 1.",
        f"module {name} (\n    input wire clk, input wire rst, input wire valid, input wire [{channels - 1}:0] x,",
        f"    output wire done, output wire [{ports.width - 1}:0] {ports.name}\n);",
        *lines,
        "endmodule",
    ]
    files = {f"{stem}.v": "\n".join([*top, *parts, body])}
    if testbench:
        files[f"{stem}_tb.v"] = _TESTBENCH.format(
            name=name,
            inputs=channels * pixels - 1,
            channels=channels - 1,
            size=pixels,
            width=ports.width - 1,
            output=ports.name,
            prints=verilog.prints(head, ports),
            read=verilog.READ.format(name=name, inputs=channels * pixels - 1),
        )
    return files
