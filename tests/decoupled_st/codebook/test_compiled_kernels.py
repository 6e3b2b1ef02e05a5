"""The kernels compile for Hopper, on a machine without one, and what they need is there.

The interpreter takes much that Triton's compiler refuses; this is what the compiler says.
"""

import os
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from decoupled_st.codebook.scores import Scores

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") == "1", reason="needs Triton's compiler"
    ),
    pytest.mark.filterwarnings("ignore"),  # Triton's own, about defaults of its next version
]
POINTERS = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}
BY_ROW = dict.fromkeys(("at_top", "peak", "total", "tau", "mean", "scale", "peak_out", "total_out", "tau_b"), "*fp32")
NUMBERS = dict.fromkeys(("top", "index", "order", "bounds", "top_out", "drawn_out", "group", "group_out"), "*i32")
NUMBERS |= {"N": "i32", "K": "i32", "share": "i32", "seed": "*i64"}


def compiled(kernel: str, dtype: torch.dtype, D: int, metric: str, noise: str) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from decoupled_st.kernels.codebook import backward, choice, tiles

    function = getattr(backward if kernel.startswith("to_") else choice, f"_{kernel}")
    x, codes = torch.zeros(1024, 2, D, dtype=dtype), torch.zeros(2, 1024, D, dtype=dtype)
    tile = kernel if kernel in ("search", "to_x", "to_codes") else "forward"
    wide = tile in ("to_x", "to_codes") and dtype == torch.float16
    shape = tiles.shape_of(Scores.of(x, codes, metric, None), tile, noisy=noise == "perturbed", wide=wide)
    options = {"num_warps": shape.pop("num_warps"), "num_stages": shape.pop("num_stages")}
    if kernel == "inside":
        options = {"num_warps": 4, "num_stages": 1}
    entropies, drawn = noise == "entropies", noise == "drawn" and kernel in ("forward", "inside")
    absent = dict.fromkeys(("row_scale", "code_scale"), metric != "cosine") | {"bias": metric != "l2"}
    absent |= {"tau_f": noise != "drawn", "seed": noise != "perturbed" and not drawn}
    absent |= dict.fromkeys(("of_entropy", "of_mean"), not entropies)
    absent |= dict.fromkeys(("grad", "index", "order", "bounds"), entropies)
    constants = shape | {"SIZE": 128, "PARTS": tiles.parts_of(shape["WIDTH"]), "WIDE": wide}
    constants |= {name: None for name, is_absent in absent.items() if is_absent}
    constants = {name: value for name, value in constants.items() if name in function.arg_names}
    types = dict.fromkeys(function.arg_names, "*fp32") | BY_ROW | NUMBERS
    types |= dict.fromkeys(("x", "codes", "grad"), POINTERS[dtype])
    if kernel == "to_codes":
        types["out"] = POINTERS[dtype]
    signature = {name: "constexpr" if name in constants else types[name] for name in function.arg_names}
    source = ASTSource(
        fn=function,
        signature=signature,
        constexprs={(function.arg_names.index(name),): value for name, value in constants.items()},
    )
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


@pytest.mark.parametrize(
    ("dtype", "D", "metric", "noise"),
    [
        (torch.bfloat16, 64, "dot", "none"),
        (torch.bfloat16, 256, "cosine", "drawn"),
        (torch.float16, 7, "l2", "perturbed"),
        (torch.bfloat16, 256, "dot", "perturbed"),
        (torch.float32, 64, "l2", "drawn"),
        (torch.bfloat16, 64, "cosine", "entropies"),
    ],
    ids=str,
)
@pytest.mark.parametrize("kernel", ["search", "forward", "inside", "to_x", "to_codes", "of_rows", "of_codes"])
def test_compiles_for_hopper(kernel: str, dtype: torch.dtype, D: int, metric: str, noise: str) -> None:
    if (kernel, noise) in (("search", "perturbed"), ("search", "entropies")):
        pytest.skip("not called so")
    if (kernel == "inside" and noise != "drawn") or (kernel.startswith("of_") and noise != "entropies"):
        pytest.skip("not called so")
    made = compiled(kernel, dtype, D, metric, noise)
    assert made.metadata.shared <= 227 * 1024
    if dtype == torch.bfloat16 and kernel != "inside":
        assert "wgmma" in made.asm["ptx"]  # tensor cores
