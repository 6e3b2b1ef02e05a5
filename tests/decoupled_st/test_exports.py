"""The public names, held: adding or losing one is a decision, not an accident."""

import pickle
import subprocess
import sys
from types import ModuleType

import pytest
import torch

import decoupled_st as dst
from decoupled_st import kernels

EXPORTED = {
    dst: """
        ClippedSTE Decoupled Estimator GappedSTE GumbelRao GumbelSTE GumbelSoft IdentitySTE ReinMax SelfTempered
        Soft SoftmaxSTE binary categorical circuits codebook diagnostics distributions estimators from_dict masked
        nn noise score_function straight_through temperatures use_kernels
    """,
    dst.masked: """
        Embedded Rollout expected_reward from_ids guide kl log_prob reveal rollout start
    """,
    dst.nn: """
        Binary Categorical Codebook FSQ GroupSum LogicConv2d LogicLayer LogicNetwork LogicNetworks LogicTreeNetwork
        LogicTrees OrPool2d Quantised ResidualCodebook Routed Router Sign SimVQ Thermometer TopK apply_gates
        apply_trees logic_tree_net random_wiring unique_wiring
    """,
    dst.codebook: """
        Distribution decoupled distribution gumbel_ste identity_ste log_prob softmax_ste
    """,
    dst.noise: """
        gumbel logistic uniform
    """,
    dst.distributions: """
        Bernoulli OneHotCategorical
    """,
    dst.circuits: """
        Circuit CompiledCircuit LoopedCircuit from_network load write_images
    """,
    dst.diagnostics: """
        Agreement BiasVariance GradientSNR active_fraction bias_variance code_usage effective_codes exact_gradient
        gate_histogram gradient_agreement gradient_norm gradient_snr perplexity perplexity_of_counts
        score_function_gradient straight_through_gain temperatures
    """,
    dst.temperatures: """
        Confidence Rule Schedule Scheduled SelfTempered State Taus Tempered View from_dict register registered scale
        usage
    """,
}


@pytest.mark.parametrize("module", EXPORTED, ids=lambda module: module.__name__)
def test_exported_names(module: ModuleType) -> None:
    assert set(module.__all__) == set(EXPORTED[module].split())


def test_the_modules_of_functions_show_the_estimators_and_nothing_else() -> None:
    from decoupled_st.binary import decoupled as binary
    from decoupled_st.categorical import decoupled as categorical

    built_in = {
        n for n in dst.estimators.names() if dst.estimators.registered(n).__module__.startswith("decoupled_st.")
    }
    for kind, function in (("categorical", categorical), ("binary", binary)):
        module = getattr(dst, kind)
        assert set(dir(module)) == set(module.__all__)
        assert set(module.__all__) - {"top_k"} == built_in
        assert module.decoupled is function
        for name in built_in:
            assert getattr(module, name) is dst.estimators.registered(name).functions[kind]
            assert pickle.loads(pickle.dumps(getattr(module, name))) is getattr(module, name)
            assert f"{kind}.{name}" in f"{getattr(module, name).__module__}.{getattr(module, name).__qualname__}"


def test_every_exported_name_is_there_and_documented() -> None:
    for module in (*EXPORTED, dst.estimators, dst.categorical, dst.binary):
        for name in module.__all__:
            assert getattr(module, name).__doc__, name


def test_importing_it_does_not_import_the_compiler() -> None:
    """Which takes as long as importing torch does; nor does a first draw."""
    draw = "dst.binary.decoupled(torch.zeros(3), tau_f=1.0, tau_b=1.0, generator=torch.Generator())"
    code = f"import sys, torch, decoupled_st as dst; {draw}; print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_what_is_imported_at_its_first_use_is_listed_before() -> None:
    code = "import decoupled_st as dst; print(sorted({*dst.__all__} - {*dir(dst)}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_mark_of_a_constant_is_torchs_own() -> None:
    assert torch.compiler.assume_constant_result(lambda: 0).__dict__ == kernels.transformed.__dict__
