"""Build kernels/host.cpp on this machine, and measure the host time of calls through it. Run in the repository root:
PYTHONPATH=src python .carry/proto.py"""
import ctypes, os, shutil, subprocess, sys, sysconfig, tempfile, time
from pathlib import Path
import torch, triton, torch.nn.functional as F
import decoupled_st as dst
from decoupled_st.kernels import categorical as K, launch as L, usual

print("python", sys.version.split()[0], "torch", torch.__version__, "triton", triton.__version__, "abi", torch._C._GLIBCXX_USE_CXX11_ABI)
print("Python.h", os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")), "g++", shutil.which("g++"), "ninja", shutil.which("ninja"), "cpus", os.cpu_count())
if shutil.which("g++"): print(subprocess.run(["g++", "--version"], capture_output=True, text=True).stdout.splitlines()[0])
root = Path(torch.__file__).parent
print("headers", (root / "include/torch/library.h").exists())
NOTHING = r'''
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
using namespace torch::autograd;
struct Nothing : Function<Nothing> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x) { ctx->save_for_backward({x}); return at::empty_like(x); }
  static variable_list backward(AutogradContext* ctx, const variable_list& g) { return {at::empty_like(ctx->get_saved_variables()[0])}; }
};
at::Tensor nothing(const at::Tensor& x) { return Nothing::apply(x); }
at::Tensor none(const at::Tensor& x) { return x; }
TORCH_LIBRARY(proto, m) { m.def("nothing(Tensor x) -> Tensor", &nothing); m.def("none(Tensor x) -> Tensor", &none); }
'''
out = Path(tempfile.mkdtemp())
(out / "nothing.cpp").write_text(NOTHING)
def build(source, name):
    for std in ("-std=c++17", "-std=c++20"):
        t = time.time()
        command = ["g++", std, "-O2", "-fPIC", "-shared", f"-I{root}/include", f"-I{root}/include/torch/csrc/api/include",
                   f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", str(source), "-o", str(out / name), f"-L{root}/lib", "-ltorch", "-ltorch_cpu", "-lc10"]
        done = subprocess.run(command, capture_output=True, text=True)
        print(name, std, "rc", done.returncode, f"{time.time() - t:.1f} s", flush=True)
        if done.returncode == 0:
            t = time.time(); torch.ops.load_library(str(out / name)); print(f"  loaded in {time.time() - t:.3f} s")
            return
        print(done.stderr[:3000])
    sys.exit(1)
build(out / "nothing.cpp", "nothing.so")
build("src/decoupled_st/kernels/host.cpp", "host.so")
cuda = ctypes.CDLL("libcuda.so.1")
torch.ops.decoupled_st.host_start([ctypes.cast(getattr(cuda, n), ctypes.c_void_p).value for n in ("cuLaunchKernel", "cuCtxGetCurrent", "cuCtxSetCurrent")])

x = torch.randn(64, 8, device="cuda", requires_grad=True)
g = torch.randn(64, 8, device="cuda")
def python(x=x): return dst.categorical.decoupled(x, tau_f=1.0, tau_b=0.5)
for _ in range(3): torch.autograd.grad(python(), x, g)
PLACE = {"z": 0, "out": 0, "logits": 1, "seed": 2, "tau": 3, "grad": 4, "tau_value": 5, "scale_value": 6, "rows": 7, "n": 7, "tau_shared": 7}
def told(kernel):
    (c,) = [c for key, c in L._compiled.items() if key[0] == id(kernel)]
    m = c.owner.metadata
    print({k: getattr(m, k, "?") for k in ("num_warps", "num_ctas", "shared", "launch_cooperative_grid", "launch_pdl", "global_scratch_size", "profile_scratch_size", "cluster_dims", "instrumentation_mode")})
    print(c.owner.src.signature, c.owner.packed_metadata, type(c.run))
    return [c.function, 32 * m.num_warps, m.shared, *(PLACE[n] for n, t in c.owner.src.signature.items() if t != "constexpr")]
height = K.tiling(8)[0]
torch.ops.decoupled_st.host_learn(x, 1.0, 0.5, True, False, None, None, height, told(K._forward), told(K._backward))
choose = torch.ops.decoupled_st.host_choose.default._op
stream = torch._C._cuda_getCurrentRawStream
def cpp(x=x): return choose(x, 1.0, 0.5, True, False, stream(0))
for shape_seed in range(3):
    results = []
    for call in (python, cpp):
        torch.manual_seed(shape_seed)
        z = call()
        results.append((z.detach(), torch.autograd.grad(z, x, g)[0], torch.cuda.get_rng_state()))
    print("bit for bit", [torch.equal(a, b) for a, b in zip(*results)])
nothing, none = torch.ops.proto.nothing.default._op, torch.ops.proto.none.default._op
class Nothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): ctx.save_for_backward(x); return torch.empty_like(x)
    @staticmethod
    def backward(ctx, g): (x,) = ctx.saved_tensors; return torch.empty_like(x)
def step(call): return lambda: torch.autograd.grad(call(x), x, g)
def backward(call):
    def run(): x.grad = None; call(x).backward(g)
    return run
def alone(run):
    def one():
        with torch.autograd.set_multithreading_enabled(False): run()
    return one
peer = lambda x: F.gumbel_softmax(x, hard=True)
d = x.detach()
from decoupled_st.estimators.operations import direct
runs = {"(a) C++ node, nothing": step(nothing), "(b) C++ ours": step(cpp), "(c) Python ours": step(python), "(d) F.gumbel_softmax": step(peer), "empty Python node": step(Nothing.apply)}
for name, call in {"(a)": nothing, "(b)": cpp, "(c)": python, "(d)": peer}.items(): runs[f"{name} by .backward"] = backward(call)
for name in list(runs)[:5]: runs[name + ", same thread"] = alone(runs[name])
runs |= {"(b) forward only": lambda: cpp(x), "(b) forward only, no gradient": lambda: choose(d, 1.0, 0.5, True, False, stream(0)), "(c) forward only": lambda: python(x),
    "(a) forward only": lambda: nothing(x), "an op that returns its argument": lambda: none(d), "is_usual": lambda: direct.is_usual(x, 1.0, 0.5, 1.0),
    "is_for_kernels": lambda: direct._is_for_kernels(x), "raw stream": lambda: stream(0), "hooked": lambda: L._is_hooked(K._forward),
    "randint": lambda: torch.randint(1 << 62, (1,), device="cuda:0"), "empty_like": lambda: torch.empty_like(d), "empty": lambda: torch.empty(1, dtype=torch.int64, device="cuda:0"),
    "random_": lambda s=torch.empty(1, dtype=torch.int64, device="cuda:0"): s.random_(0, 1 << 62),
    "empty engine: grad of a mul": lambda y=x * 2: torch.autograd.grad(y, x, g, retain_graph=True)}
times = {n: [] for n in runs}
for r in runs.values():
    for _ in range(20): r()
for _ in range(100):
    for n, r in runs.items():
        torch.cuda.synchronize()
        t = time.perf_counter()
        for _ in range(20): r()
        times[n].append((time.perf_counter() - t) / 20 * 1e6)
for n, v in times.items():
    v.sort(); print(f"{n:40} {v[len(v) // 2]:8.1f} us   (10%: {v[len(v) // 10]:.1f}, 90%: {v[9 * len(v) // 10]:.1f})")
m = {n: v[len(v) // 2] for n, v in times.items()}
print("peer / C++:", m["(d) F.gumbel_softmax"] / m["(b) C++ ours"], "peer / Python:", m["(d) F.gumbel_softmax"] / m["(c) Python ours"])
