"""The rule's kernel compiles for Hopper, on a machine without one; the interpreter takes more than the compiler."""

import os
from importlib.util import find_spec

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") == "1", reason="needs Triton's compiler"
    ),
    pytest.mark.filterwarnings("ignore"),  # Triton's own, about defaults of its next version
]
POINTERS = {
    **dict.fromkeys(("passes", "usages", "new_passes", "new_usages"), "*i64"),
    **dict.fromkeys(("first", "scale", "usage", "new_first", "new_scale", "new_usage", "tau_f", "tau_b"), "*fp32"),
    **dict.fromkeys(("last_f", "last_b"), "*fp32"),
}
INTEGERS = ("per_run", "categories", "measured", "rows", "samples", "latents")


@pytest.mark.parametrize("logits", ["*fp32", "*bf16"])
@pytest.mark.parametrize(("binary", "usage", "line"), [(False, True, False), (True, True, True), (False, False, False)])
@pytest.mark.parametrize("ones", [(), INTEGERS], ids=["many", "one of each"])  # a 1 is compiled in
def test_compiles_for_hopper(logits: str, binary: bool, usage: bool, line: bool, ones: tuple[str, ...]) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from decoupled_st.kernels.temperatures import _step

    constants = {"SETTLED": 50, "EVERY": 8, "BINARY": binary, "USAGE": usage, "LINE": line, "WIDTH": 8, "HEIGHT": 256}
    constants |= dict.fromkeys(ones, 1)
    types = dict.fromkeys(_step.arg_names, "fp32") | dict.fromkeys(INTEGERS, "i32") | POINTERS | {"logits": logits}
    signature = {name: "constexpr" if name in constants else types[name] for name in _step.arg_names}
    places = {(_step.arg_names.index(name),): value for name, value in constants.items()}
    made = triton.compile(ASTSource(_step, signature, places), target=GPUTarget("cuda", 90, 32))
    assert "ptx" in made.asm
