"""What `kernels/host.py` says of a kernel, against what Triton's compiler makes of it for Hopper, without one."""

import os
import re
from importlib.util import find_spec
from typing import Any

import pytest

pytestmark = [
    pytest.mark.skipif(
        find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") == "1", reason="needs Triton's compiler"
    ),
    pytest.mark.filterwarnings("ignore"),  # Triton's own, about defaults of its next version
]
WORDS = ("u64", "u64", "u64", "u64", "u64", "f32", "f32", "u32", "u64")
"""By place in `Values` of host.cpp."""


def compiled(kernel: Any, pointers: dict[str, str], integers: dict[str, str], constants: dict[str, Any]) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {}
    for name in kernel.arg_names:
        if name in constants or (name not in pointers and name not in integers and not name.endswith("_value")):
            signature[name] = "constexpr"
            constants.setdefault(name, 1 if name.endswith("_shared") or name in ("rows", "n") else None)
        else:
            signature[name] = pointers.get(name) or integers.get(name) or "fp32"
    attrs = {(kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in pointers}
    source = ASTSource(kernel, signature, {(kernel.arg_names.index(n),): v for n, v in constants.items()}, attrs)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})


@pytest.mark.parametrize(
    ("tau", "drawn", "rows"),
    [(True, "*i64", "i32"), (False, "i64", "i32"), (True, "i64", None), (False, "*i64", None), (False, None, "i32")],
    ids=["tensors", "numbers", "one row, seed a number", "one row, seed on the device", "not drawn"],
)
@pytest.mark.parametrize("which", ["forward", "backward", "binary forward", "binary backward"])
def test_the_parameters_of_a_compiled_kernel(which: str, tau: bool, drawn: str | None, rows: str | None) -> None:
    from decoupled_st.kernels import binary, categorical, host

    module = binary if which.startswith("binary") else categorical
    kernel = module.BACKWARD if which.endswith("backward") else module.FORWARD
    kernel = kernel[0] if isinstance(kernel, tuple) else kernel
    pointers = dict.fromkeys(("z", "logits") if "forward" in which else ("out", "grad", "logits"), "*fp32")
    pointers |= {"seed": "*i64"} if drawn == "*i64" else {}
    pointers |= {"tau": "*fp32"} if tau else {}
    count = "n" if module is binary else "rows"
    integers = {} if rows is None else {count: rows} | ({"tau_shared": rows} if tau else {})
    integers |= {"seed": "i64"} if drawn == "i64" else {}
    constants = {"NOISE": int(drawn is not None), "BLOCK": 2048 if module is binary else 8}
    constants |= {"WIDE": False} if module is binary else {"K": 6, "ROWS": 128}
    found = compiled(kernel, pointers, integers, constants)
    found.function = 7
    description = host.describe(found)
    assert description is not None
    function, threads, shared, *parameters = description
    assert (function, threads, shared) == (7, 128, found.metadata.shared)
    entry = found.asm["ptx"].partition(".entry")[2].partition(")")[0]
    words = re.findall(r"\.param \.(\w+)", entry)
    assert words == [*(WORDS[place] for place in parameters), "u64", "u64"], "and two pointers to scratch memory"
