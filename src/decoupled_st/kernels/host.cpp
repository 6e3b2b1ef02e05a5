// The usual call of an estimator without Python: a node of autograd that draws the seed, and launches forward and
// backward by the CUDA driver. The kernels are those that Triton has compiled and launched before; `host.py` says which
// they are, and tests put a driver of their own in the place of CUDA's.
//
// Neither Python's headers nor CUDA's are needed: one library for each torch, whatever the device.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randint.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <map>
#include <mutex>

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using MaybeTensor = std::optional<Tensor>;

struct {
  int (*launch)(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned shared,
                void* stream, void** arguments, void** extra) = nullptr;
  int (*get_context)(void**) = nullptr;
  int (*set_context)(void*) = nullptr;
} driver;

constexpr int INVALID_CONTEXT = 201;  // CUDA_ERROR_INVALID_CONTEXT

struct Kernel {
  void* function = nullptr;
  unsigned threads = 0, shared = 0;
  std::vector<int64_t> parameters;  // which of `Values` they are
};

struct Plan {
  int64_t width = 1, height = 1;  // elements of a row, and rows of a program
  void* context = nullptr;
  Kernel forward, backward;
};

// What a kernel's parameters can be, in the order of `host.PARAMETERS`.
struct Values {
  const void *written, *logits, *seed, *tau, *grad;
  float tau_value, scale_value;
  int64_t rows;
};

const void* address(const Tensor& tensor) { return tensor.defined() ? tensor.const_data_ptr() : nullptr; }

void launch(const Plan& plan, const Kernel& kernel, void* stream, Values values) {
  void* places[] = {&values.written, &values.logits,    &values.seed,        &values.tau,
                    &values.grad,    &values.tau_value, &values.scale_value, &values.rows};
  void *arguments[16], *nothing = nullptr;
  size_t count = 0;
  for (int64_t parameter : kernel.parameters) arguments[count++] = places[parameter];
  arguments[count++] = &nothing;  // Triton's scratch memory, of which these kernels need none
  arguments[count++] = &nothing;
  const auto programs = static_cast<unsigned>((values.rows + plan.height - 1) / plan.height);
  auto go = [&] {
    return driver.launch(kernel.function, programs, 1, 1, kernel.threads, 1, 1, kernel.shared, stream, arguments,
                         nullptr);
  };
  int error = go();
  if (error == INVALID_CONTEXT) {  // a new thread of autograd, which has not called CUDA yet
    driver.set_context(plan.context);
    error = go();
  }
  TORCH_CHECK(error == 0, "the CUDA driver could not launch a kernel of decoupled_st: error ", error);
}

// --- plans ----------------------------------------------------------------------------------------------------------

using Key = std::array<int64_t, 4>;
std::map<Key, Plan> plans;  // what is in it stays where it is
std::mutex plans_lock;

struct Call {
  bool categorical, perturbed;
  Tensor tau_f, tau_b;
  double tau_f_value, tau_b_value;
  void* stream;
  const Plan* plan;

  bool draws() const { return tau_f.defined() || tau_f_value != 0; }
};

// All that decides which compiled kernel is launched, as in `launch.py`.
Key key_of(const Tensor& logits, const Call& call) {
  const int64_t width = call.categorical ? logits.size(-1) : 1, rows = logits.numel() / width;
  const int64_t kind = rows == 1 ? 1 : 2 * (rows % 16 == 0) + 4 * (rows >= (1LL << 31)) + 8;
  const int64_t options = call.categorical + 2 * call.perturbed + 4 * call.tau_f.defined() + 8 * call.tau_b.defined() +
                          16 * call.draws();
  return {width, kind, options, logits.get_device() * 256 + static_cast<int64_t>(logits.scalar_type())};
}

const Plan* find(const Key& key) {
  std::lock_guard<std::mutex> guard(plans_lock);
  const auto found = plans.find(key);
  return found == plans.end() ? nullptr : &found->second;
}

// --- the call -------------------------------------------------------------------------------------------------------

bool is_aligned(const Tensor& tensor) { return reinterpret_cast<uintptr_t>(address(tensor)) % 16 == 0; }

Tensor run_forward(const Tensor& logits, const Call& call, Tensor& seed) {
  at::AutoDispatchBelowADInplaceOrView below;
  if (call.draws()) seed = at::randint(int64_t{1} << 62, {1}, logits.options().dtype(at::kLong));
  Tensor z = at::empty_like(logits);
  launch(*call.plan, call.plan->forward, call.stream,
         {address(z), address(logits), address(seed), address(call.tau_f), nullptr,
          static_cast<float>(call.tau_f_value), 1.0f, logits.numel() / call.plan->width});
  return z;
}

struct Choose : torch::autograd::Function<Choose> {
  static Tensor forward(AutogradContext* ctx, const Tensor& logits, const Call& call) {
    Tensor seed;
    Tensor z = run_forward(logits, call, seed);
    ctx->save_for_backward({logits, call.perturbed ? seed : Tensor(), call.tau_b});
    ctx->saved_data["tau"] = call.tau_b_value;
    ctx->saved_data["plan"] = reinterpret_cast<int64_t>(call.plan);
    ctx->saved_data["stream"] = reinterpret_cast<int64_t>(call.stream);
    return z;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &logits = saved[0], &seed = saved[1], &tau = saved[2];
    const auto& plan = *reinterpret_cast<const Plan*>(ctx->saved_data["plan"].toInt());
    at::AutoDispatchBelowADInplaceOrView below;
    const c10::DeviceGuard guard(logits.device());
    const Tensor grad = grads[0].contiguous();
    Tensor out = at::empty_like(logits);
    launch(plan, plan.backward, reinterpret_cast<void*>(ctx->saved_data["stream"].toInt()),
           {address(out), address(logits), address(seed), address(tau), address(grad),
            static_cast<float>(ctx->saved_data["tau"].toDouble()), 1.0f, logits.numel() / plan.width});
    return {out, Tensor()};
  }
};

Call call_of(double tau_f, double tau_b, bool categorical, bool perturbed, int64_t stream, const MaybeTensor& tau_f_at,
             const MaybeTensor& tau_b_at) {
  return {categorical, perturbed, tau_f_at.value_or(Tensor()), tau_b_at.value_or(Tensor()), tau_f, tau_b,
          reinterpret_cast<void*>(stream), nullptr};
}

MaybeTensor choose(const Tensor& logits, double tau_f, double tau_b, bool categorical, bool perturbed, int64_t stream,
                   const MaybeTensor& tau_f_at, const MaybeTensor& tau_b_at) {
  Call call = call_of(tau_f, tau_b, categorical, perturbed, stream, tau_f_at, tau_b_at);
  call.plan = find(key_of(logits, call));
  if (!call.plan || !is_aligned(logits) || !is_aligned(call.tau_f) || !is_aligned(call.tau_b)) return std::nullopt;
  if (logits.requires_grad() && at::GradMode::is_enabled()) {
    if (!call.plan->backward.function) return std::nullopt;
    return Choose::apply(logits, call);
  }
  Tensor seed;
  return run_forward(logits, call, seed);
}

Kernel kernel_of(at::IntArrayRef told) {
  if (told.empty()) return {};
  return {reinterpret_cast<void*>(told[0]), static_cast<unsigned>(told[1]), static_cast<unsigned>(told[2]),
          told.slice(3).vec()};
}

void learn(const Tensor& logits, double tau_f, double tau_b, bool categorical, bool perturbed,
           const MaybeTensor& tau_f_at, const MaybeTensor& tau_b_at, int64_t height, at::IntArrayRef forward,
           at::IntArrayRef backward) {
  const Call call = call_of(tau_f, tau_b, categorical, perturbed, 0, tau_f_at, tau_b_at);
  const c10::DeviceGuard guard(logits.device());
  Plan plan{categorical ? logits.size(-1) : 1, height, nullptr, kernel_of(forward), kernel_of(backward)};
  driver.get_context(&plan.context);
  std::lock_guard<std::mutex> lock(plans_lock);
  plans.emplace(key_of(logits, call), std::move(plan));
}

void start(at::IntArrayRef addresses) {
  driver = {reinterpret_cast<decltype(driver.launch)>(addresses[0]),
            reinterpret_cast<decltype(driver.get_context)>(addresses[1]),
            reinterpret_cast<decltype(driver.set_context)>(addresses[2])};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(decoupled_st, m) {
  m.def("host_start(int[] addresses) -> ()", &start);
  m.def(
      "host_learn(Tensor logits, float tau_f, float tau_b, bool categorical, bool perturbed, Tensor? tau_f_at, "
      "Tensor? tau_b_at, int height, int[] forward, int[] backward) -> ()",
      &learn);
  m.def(
      "host_choose(Tensor logits, float tau_f, float tau_b, bool categorical, bool perturbed, int stream, "
      "Tensor? tau_f_at=None, Tensor? tau_b_at=None) -> Tensor?",
      &choose);
}
