"""The public names, held: adding or losing one is a decision, not an accident."""

import decoupled_st as dst


def test_exported_names() -> None:
    assert set(dst.__all__) == {
        "Decoupled", "Estimator", "GumbelSTE", "IdentitySTE", "Soft", "SoftmaxSTE",
        "binary", "categorical", "diagnostics", "from_dict", "nn", "straight_through", "use_kernels",
    }  # fmt: skip
    assert set(dst.nn.__all__) == {"Binary", "Categorical", "GroupSum", "LogicLayer", "apply_gates"}
    assert set(dst.diagnostics.__all__) == {
        "BiasVariance", "GradientSNR", "active_fraction", "bias_variance", "exact_gradient", "gate_histogram",
        "gradient_norm", "gradient_snr", "perplexity", "score_function_gradient",
    }  # fmt: skip


def test_every_exported_name_is_there_and_documented() -> None:
    for module in (dst, dst.nn, dst.diagnostics):
        for name in module.__all__:
            assert getattr(module, name).__doc__
