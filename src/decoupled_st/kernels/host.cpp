// The usual call of an estimator without Python: a node of autograd that draws the seed, and launches forward and
// backward by the CUDA driver. The kernels are those that Triton has compiled and launched before; `host.py` says which,
// and what the driver's functions are.
//
// What backward cannot hand to a kernel (a gradient to be differentiated, many at once, tracing) goes to the node in
// Python. Neither Python's headers nor CUDA's are needed: there is one library for each torch, whatever the device.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randint.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <array>
#include <map>
#include <mutex>

namespace decoupled_st {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using MaybeTensor = std::optional<Tensor>;

// --- launches -------------------------------------------------------------------------------------------------------

// cuLaunchKernel, cuCtxGetCurrent and cuCtxSetCurrent, or what a test puts in their place.
struct Driver {
  int (*launch)(void* function, unsigned grid, unsigned, unsigned, unsigned threads, unsigned, unsigned,
                unsigned shared, void* stream, void** arguments, void** extra);
  int (*get_context)(void** context);
  int (*set_context)(void* context);
};
static Driver driver;

constexpr int INVALID_CONTEXT = 201;  // CUDA_ERROR_INVALID_CONTEXT

struct Kernel {
  void* function = nullptr;
  unsigned threads = 0, shared = 0;
  std::vector<int64_t> parameters;  // each a place in `Values`
};

// What is launched for one kind of call.
struct Plan {
  int64_t width = 1, height = 1;  // elements of a row, and rows of a program
  void* context = nullptr;
  Kernel forward, backward;
};

// All that a kernel's parameters can be, as `host.PARAMETERS` numbers them.
struct Values {
  const void *written, *logits, *seed, *tau, *grad;
  float tau_value, scale_value;
  int32_t rows;
};
constexpr int64_t PLACES = 8;

static void launch(const Plan& plan, const Kernel& kernel, void* stream, Values v) {
  void* places[PLACES] = {&v.written, &v.logits, &v.seed, &v.tau, &v.grad, &v.tau_value, &v.scale_value, &v.rows};
  void *arguments[16], *nothing = nullptr;
  size_t count = 0;
  for (const auto parameter : kernel.parameters) arguments[count++] = places[parameter];
  arguments[count++] = &nothing;  // Triton's scratch memory, of which these kernels need none
  arguments[count++] = &nothing;
  const auto programs = static_cast<unsigned>((v.rows + plan.height - 1) / plan.height);
  const auto go = [&] {
    return driver.launch(kernel.function, programs, 1, 1, kernel.threads, 1, 1, kernel.shared, stream, arguments,
                         nullptr);
  };
  int error = go();
  if (error == INVALID_CONTEXT) {  // a thread of autograd that has not called CUDA yet
    driver.set_context(plan.context);
    error = go();
  }
  TORCH_CHECK(error == 0, "the CUDA driver could not launch a kernel of decoupled_st: error ", error);
}

static const void* address(const Tensor& tensor) { return tensor.defined() ? tensor.const_data_ptr() : nullptr; }

static bool is_aligned(const Tensor& tensor) { return reinterpret_cast<uintptr_t>(address(tensor)) % 16 == 0; }

// --- calls and their plans ------------------------------------------------------------------------------------------

struct Call {
  bool categorical, perturbed;
  double tau_f_value, tau_b_value;
  Tensor tau_f, tau_b;  // instead of the values, where they are defined
  const Plan* plan = nullptr;
  void* stream = nullptr;

  bool draws() const { return tau_f.defined() || tau_f_value != 0; }
};

using Key = std::array<int64_t, 4>;
static std::map<Key, Plan> plans;  // what is in it stays where it is
static std::mutex plans_lock;

constexpr int64_t MOST = 1 << 30;  // elements; with more, other kernels are launched, and the host's time is nothing

// All that decides which compiled kernel is launched, as in `launch.py`.
static Key key_of(const Tensor& logits, const Call& call) {
  const int64_t width = call.categorical ? logits.size(-1) : 1, rows = logits.numel() / width;
  const int64_t sizes = (rows == 1) + 2 * (rows % 16 == 0);
  const int64_t options = call.categorical + 2 * call.perturbed + 4 * call.draws() + 8 * call.tau_f.defined() +
                          16 * call.tau_b.defined();
  return {width, sizes, options, 256 * logits.get_device() + static_cast<int64_t>(logits.scalar_type())};
}

static const Plan* find_plan(const Tensor& logits, const Call& call) {
  const std::lock_guard<std::mutex> guard(plans_lock);
  const auto found = plans.find(key_of(logits, call));
  return found == plans.end() ? nullptr : &found->second;
}

// --- forward and backward -------------------------------------------------------------------------------------------

static int32_t rows_of(const Tensor& logits, const Plan& plan) {
  return static_cast<int32_t>(logits.numel() / plan.width);
}

static Tensor run_forward(const Tensor& logits, const Call& call, Tensor& seed) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const c10::DeviceGuard guard(logits.device());
  if (call.draws()) seed = at::randint(int64_t{1} << 62, {1}, logits.options().dtype(at::kLong));  // as `draw_seed`
  Tensor z = at::empty_like(logits);
  const Values values{address(z), address(logits), address(seed), address(call.tau_f), nullptr,
                      static_cast<float>(call.tau_f_value), 1.0f, rows_of(logits, *call.plan)};
  launch(*call.plan, call.plan->forward, call.stream, values);
  return z;
}

static Tensor run_backward(const Plan& plan, void* stream, const Tensor& incoming, const Tensor& logits,
                           const Tensor& seed, const Tensor& tau, double tau_value) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const c10::DeviceGuard guard(logits.device());
  Tensor grad = incoming.contiguous();
  if (!is_aligned(grad)) grad = grad.clone();
  Tensor out = at::empty_like(logits);
  const Values values{address(out), address(logits), address(seed), address(tau), address(grad),
                      static_cast<float>(tau_value), 1.0f, rows_of(logits, plan)};
  launch(plan, plan.backward, stream, values);
  return out;
}

// True for memory and nothing else: no subclass, no transform's wrapper, no sign still to be applied.
static bool is_plain(const Tensor& tensor) {
  using c10::DispatchKey;
  static const c10::DispatchKeySet usual{DispatchKey::CPU,           DispatchKey::CUDA,        DispatchKey::AutogradCPU,
                                         DispatchKey::AutogradCUDA,  DispatchKey::AutocastCPU, DispatchKey::AutocastCUDA,
                                         DispatchKey::ADInplaceOrView};
  return (tensor.key_set().raw_repr() & ~usual.raw_repr()) == 0;
}

// True where someone traces, watches or transforms what is called.
static bool is_watched() {
  return (c10::impl::tls_local_dispatch_key_set().included_.raw_repr() & ~c10::default_included_set.raw_repr()) != 0;
}

static bool fits(const Tensor& tensor, const Tensor& like) {
  return is_plain(tensor) && tensor.device() == like.device() && tensor.scalar_type() == like.scalar_type() &&
         tensor.sizes() == like.sizes();
}

static bool is_stored(const Tensor& tensor) {
  return !tensor.defined() || (is_plain(tensor) && tensor.is_contiguous() && is_aligned(tensor));
}

static c10::IValue or_none(const Tensor& tensor) { return tensor.defined() ? c10::IValue(tensor) : c10::IValue(); }

// The gradient by the node in Python (`host._gradient`). It is called past the dispatcher's own choice, by a key under
// which it is registered: the dispatcher would unwrap what it is to see wrapped.
static Tensor ask_python(const Tensor& grad, const Tensor& logits, const Tensor& seed, const Tensor& tau,
                         double tau_value, bool categorical) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("decoupled_st::host_gradient", "");
  torch::jit::Stack stack{grad, logits, or_none(seed), or_none(tau), tau_value, categorical};
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  return stack.at(0).toTensor();
}

struct Choose : torch::autograd::Function<Choose> {
  static constexpr bool is_traceable = true;

  static Tensor forward(AutogradContext* ctx, const Tensor& logits, const Call& call) {
    Tensor seed;
    Tensor z = run_forward(logits, call, seed);
    ctx->save_for_backward({logits, call.perturbed ? seed : Tensor(), call.tau_b});
    ctx->saved_data["categorical"] = call.categorical;
    ctx->saved_data["tau"] = call.tau_b_value;
    ctx->saved_data["plan"] = reinterpret_cast<int64_t>(call.plan);
    ctx->saved_data["stream"] = reinterpret_cast<int64_t>(call.stream);  // on which autograd runs backward too
    return z;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &grad = grads[0], &logits = saved[0], &seed = saved[1], &tau = saved[2];
    const double tau_value = ctx->saved_data["tau"].toDouble();
    // Gradients are enabled where this one is to be differentiated. What was saved may come back otherwise, by a hook.
    if (at::GradMode::is_enabled() || is_watched() || !fits(grad, logits) || !is_stored(logits) || !is_stored(seed) ||
        !is_stored(tau))
      return {ask_python(grad, logits, seed, tau, tau_value, ctx->saved_data["categorical"].toBool()), Tensor()};
    const auto& plan = *reinterpret_cast<const Plan*>(ctx->saved_data["plan"].toInt());
    auto* stream = reinterpret_cast<void*>(ctx->saved_data["stream"].toInt());
    return {run_backward(plan, stream, grad, logits, seed, tau, tau_value), Tensor()};
  }
};

// --- operators ------------------------------------------------------------------------------------------------------

static Call as_call(bool categorical, bool perturbed, double tau_f, double tau_b, const MaybeTensor& tau_f_at,
                    const MaybeTensor& tau_b_at) {
  return {categorical, perturbed, tau_f, tau_b, tau_f_at.value_or(Tensor()), tau_b_at.value_or(Tensor())};
}

// z, or nothing where there is no plan for this call: then nothing has been drawn either.
static MaybeTensor choose(const Tensor& logits, double tau_f, double tau_b, bool categorical, bool perturbed,
                          int64_t stream, const MaybeTensor& tau_f_at, const MaybeTensor& tau_b_at) {
  Call call = as_call(categorical, perturbed, tau_f, tau_b, tau_f_at, tau_b_at);
  call.plan = find_plan(logits, call);
  call.stream = reinterpret_cast<void*>(stream);
  if (!call.plan || logits.numel() > MOST || !is_stored(logits) || !is_stored(call.tau_f) || !is_stored(call.tau_b))
    return std::nullopt;
  if (logits.requires_grad() && at::GradMode::is_enabled()) return Choose::apply(logits, call);
  Tensor seed;
  return run_forward(logits, call, seed);
}

// function, threads, bytes of shared memory, parameters
static Kernel as_kernel(at::IntArrayRef told) {
  Kernel kernel{reinterpret_cast<void*>(told.at(0)), static_cast<unsigned>(told.at(1)),
                static_cast<unsigned>(told.at(2)), told.slice(3).vec()};
  TORCH_CHECK(kernel.parameters.size() <= 14, "too many parameters");
  for (const auto parameter : kernel.parameters) TORCH_CHECK(0 <= parameter && parameter < PLACES, "no such parameter");
  return kernel;
}

// From now on calls of this kind are made here.
static void learn(const Tensor& logits, double tau_f, double tau_b, bool categorical, bool perturbed,
                  const MaybeTensor& tau_f_at, const MaybeTensor& tau_b_at, int64_t height, at::IntArrayRef forward,
                  at::IntArrayRef backward) {
  if (logits.numel() > MOST) return;
  const Call call = as_call(categorical, perturbed, tau_f, tau_b, tau_f_at, tau_b_at);
  const c10::DeviceGuard guard(logits.device());
  Plan plan{categorical ? logits.size(-1) : 1, height, nullptr, as_kernel(forward), as_kernel(backward)};
  if (driver.get_context(&plan.context) != 0 || !plan.context) return;
  const std::lock_guard<std::mutex> lock(plans_lock);
  plans.emplace(key_of(logits, call), std::move(plan));
}

static void start(at::IntArrayRef addresses) {
  driver = {reinterpret_cast<decltype(driver.launch)>(addresses.at(0)),
            reinterpret_cast<decltype(driver.get_context)>(addresses.at(1)),
            reinterpret_cast<decltype(driver.set_context)>(addresses.at(2))};
}

}  // namespace decoupled_st

TORCH_LIBRARY_FRAGMENT(decoupled_st, m) {
  m.def("host_start(int[] addresses) -> ()", &decoupled_st::start);
  m.def(
      "host_learn(Tensor logits, float tau_f, float tau_b, bool categorical, bool perturbed, Tensor? tau_f_at, "
      "Tensor? tau_b_at, int height, int[] forward, int[] backward) -> ()",
      &decoupled_st::learn);
  m.def(
      "host_choose(Tensor logits, float tau_f, float tau_b, bool categorical, bool perturbed, int stream, "
      "Tensor? tau_f_at=None, Tensor? tau_b_at=None) -> Tensor?",
      &decoupled_st::choose);
  m.def(
      "host_gradient(Tensor grad, Tensor logits, Tensor? seed, Tensor? tau, float tau_value, bool categorical) -> "
      "Tensor");
}
