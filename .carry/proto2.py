"""Host time of the usual call as called from Python, by C++ and by Python, in one run. In the repository root:
PYTHONPATH=src python .carry/proto2.py"""
import time, torch, torch.nn.functional as F
t = time.time()
from decoupled_st.kernels import host_build
try: print(host_build.build(), f"{time.time() - t:.1f} s")
except Exception as e: raise SystemExit(f"build failed: {e}")
import decoupled_st as dst
from decoupled_st.kernels import host, launch as L, categorical as K
from decoupled_st.estimators.operations import direct
x = torch.randn(64, 8, device="cuda", requires_grad=True)
g = torch.randn(64, 8, device="cuda")
ours = lambda x: dst.categorical.decoupled(x, tau_f=1.0, tau_b=0.5)
gumbel = lambda x: dst.categorical.gumbel_ste(x, tau=0.5)
for call in (ours, gumbel):
    for _ in range(4):
        z = call(x); torch.autograd.grad(z, x, g); print(z.grad_fn.name(), end="; ")
print("\nkernels by number:", len(host._kept), "operator", host._operator is not None, "draws alike", host._draws_alike(x.device))
op = host._operator
def by(operator, call):
    def run(x):
        host._operator = operator
        return call(x)
    return run
for call in (ours, gumbel):
    for seed in range(3):
        results = []
        for o in (None, op):
            torch.manual_seed(seed); host._operator = o
            if o is None: host._next_look = float("inf")
            r = []
            for _ in range(3):
                z = call(x); r += [z.detach(), torch.autograd.grad(z, x, g)[0]]
            results.append([*r, torch.cuda.get_rng_state()])
        print("bit for bit", [torch.equal(a, b) for a, b in zip(*results)])
class Nothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): ctx.save_for_backward(x); return torch.empty_like(x)
    @staticmethod
    def backward(ctx, g): (x,) = ctx.saved_tensors; return torch.empty_like(x)
peer = lambda x: F.gumbel_softmax(x, hard=True)
calls = {"C++": by(op, ours), "Python": by(None, ours), "peer": peer, "gumbel C++": by(op, gumbel), "empty Python node": Nothing.apply}
def step(call): return lambda: torch.autograd.grad(call(x), x, g)
def backward(call):
    def run(): x.grad = None; call(x).backward(g)
    return run
def alone(run):
    def one():
        with torch.autograd.set_multithreading_enabled(False): run()
    return one
runs = {n: step(c) for n, c in calls.items()}
runs |= {n + " .backward": backward(c) for n, c in calls.items()}
runs |= {n + " same thread": alone(step(c)) for n, c in calls.items()}
raw, stream, d, seed = op, torch._C._cuda_getCurrentRawStream, x.detach(), torch.zeros(1, dtype=torch.int64, device="cuda")
runs |= {"C++ forward": lambda: by(op, ours)(x), "op alone": lambda: raw(x, 1.0, 0.5, True, False, stream(0)), "op, no gradient": lambda: raw(d, 1.0, 0.5, True, False, stream(0)),
  "op, tau_f 0, no gradient": lambda: raw(d, 0.0, 0.5, True, False, stream(0)), "op, no plan": lambda: raw(x, 0.0, 0.5, True, False, stream(0)),
  "is_usual": lambda: direct.is_usual(x, 1.0, 0.5, 1.0), "watched": L.is_watched, "randint": lambda: torch.randint(1 << 62, (1,), device="cuda:0"),
  "grad of a mul": lambda y=x * 2: torch.autograd.grad(y, x, g, retain_graph=True)}
times = {n: [] for n in runs}
for r in runs.values():
    for _ in range(20): r()
for _ in range(100):
    for n, r in runs.items():
        torch.cuda.synchronize(); t = time.perf_counter()
        for _ in range(20): r()
        times[n].append((time.perf_counter() - t) / 20 * 1e6)
m = {}
for n, v in times.items():
    v.sort(); m[n] = v[len(v) // 2]; print(f"{n:32} {m[n]:8.1f} us   (10%: {v[len(v) // 10]:.1f}, 90%: {v[9 * len(v) // 10]:.1f})")
for way in ("", " .backward", " same thread"): print("peer / C++" + way, round(m["peer" + way] / m["C++" + way], 2), "peer / Python" + way, round(m["peer" + way] / m["Python" + way], 2))
