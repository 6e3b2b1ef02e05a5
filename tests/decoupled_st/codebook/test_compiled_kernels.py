"""The kernels compile for Hopper, on a machine without one, and what they need is there.

The interpreter takes much that Triton's compiler refuses; this is what the compiler says.
"""

import os
from importlib.util import find_spec
from typing import Any

import pytest
import torch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") == "1", reason="needs Triton's compiler"
    ),
    pytest.mark.filterwarnings("ignore"),  # Triton's own, about defaults of its next version
]
POINTERS = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}
BY_ROW = dict.fromkeys(("at_top", "peak", "total", "tau", "mean", "scale", "peak_out", "total_out", "tau_b"), "*fp32")
NUMBERS = dict.fromkeys(("top", "index", "order", "bounds", "top_out", "drawn_out", "group"), "*i32")
NUMBERS |= {"N": "i32", "K": "i32", "seed": "*i64"}


def compiled(kernel: str, dtype: torch.dtype, D: int, metric: str, noise: str) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from decoupled_st.kernels.codebook import backward, choice, distribution, tiles

    modules = {"forward": choice, "inside": choice, "to_x": backward, "to_codes": backward}
    function = getattr(modules.get(kernel, distribution), f"_{kernel}")
    cosine, width = metric == "cosine", max(16, triton.next_power_of_2(D))
    constants: dict[str, Any] = {
        "HEADS": 2,
        "D": D,
        "L2": metric == "l2",
        "WIDTH": width,
        "SIZE": 128,
        "PRECISION": "tf32x3" if dtype == torch.float32 else "tf32",
        "PARTS": tiles.parts_of(width),
        "WHOLE_ROWS": width == D,
        "WHOLE_CODES": width == D,
        "WIDE": dtype == torch.float16,
        "row_scale": None,
        "code_scale": None,
        "bias": None,
        "tau_f": None,
        "seed": None,
    }
    if kernel in ("to_x", "to_codes"):
        for name in ("of_entropy", "of_mean") if noise != "entropies" else ("grad", "index", "order", "bounds"):
            constants[name] = None
    present = {"row_scale": cosine, "code_scale": cosine, "bias": metric == "l2", "tau_f": noise == "drawn"}
    present["seed"] = noise == "perturbed" or (noise == "drawn" and kernel in ("forward", "inside"))
    for name, is_present in present.items():
        if is_present:
            del constants[name]
    warps, stages = 4, 1
    if kernel != "inside":
        tile = tiles.tiling(
            "forward" if kernel.startswith("of_") else kernel,
            width * dtype.itemsize,
            dtype == torch.float32,
            noise == "perturbed",
        )
        constants["ROWS"], constants["CODES"], warps, stages = tile
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
    options = {"num_warps": warps, "num_stages": stages}
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
@pytest.mark.parametrize("kernel", ["forward", "inside", "to_x", "to_codes", "of_rows", "of_codes"])
def test_compiles_for_hopper(kernel: str, dtype: torch.dtype, D: int, metric: str, noise: str) -> None:
    if (kernel == "inside" and noise != "drawn") or (kernel.startswith("of_") and noise != "entropies"):
        pytest.skip("not called so")
    made = compiled(kernel, dtype, D, metric, noise)
    assert made.metadata.shared <= 227 * 1024
    if dtype == torch.bfloat16 and kernel != "inside":
        assert "wgmma" in made.asm["ptx"]  # tensor cores
