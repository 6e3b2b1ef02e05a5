"""The kernels of categorical choices compile for Hopper, on a machine without one: the interpreter takes much that
Triton's compiler refuses."""

import os
from importlib.util import find_spec
from typing import Any

import pytest
from dst_lab.estimators import AVERAGED, GAPPED, SECOND_ORDER

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") == "1", reason="needs Triton's compiler"
    ),
    pytest.mark.filterwarnings("ignore"),  # Triton's own, about defaults of its next version
]
TYPES = {
    "key": "*i64", "step": "*i64", "use": "i32", "site": "i32", "rows": "i32", "gap": "fp32", "out": "*fp32",
}  # fmt: skip


def compiled(function: Any, constants: dict[str, Any], **types: str) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    known = dict.fromkeys(function.arg_names, "*fp32") | TYPES | types
    signature = {name: "constexpr" if name in constants else known[name] for name in function.arg_names}
    places = {(function.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=function, signature=signature, constexprs=places)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})


@pytest.mark.parametrize("k", [3, 4, 64])
@pytest.mark.parametrize(("surrogate", "samples"), [(SECOND_ORDER, 1), (GAPPED, 1), (AVERAGED, 20)])
def test_gradients_given_the_choice(surrogate: str, samples: int, k: int) -> None:
    from dst_lab.fleet.cuda import choose

    columns = 1 << (k - 1).bit_length()
    tile = {"K": k, "ROWS": 1024 // columns, "COLUMNS": columns}
    compiled(choose._backward_given_choice, {"SURROGATE": surrogate, "SAMPLES": samples, **tile})
