// The usual call of an estimator without Python: a node of autograd that draws the seed, and launches forward and
// backward by the CUDA driver. The kernels are those that Triton has compiled and launched before; `host.py` says which,
// and what the driver's functions are.
//
// What backward cannot hand to a kernel (a gradient to be differentiated, many at once, tracing) goes to the node in
// Python. Neither Python's headers nor CUDA's are needed; WITH_CUDA says that torch has CUDA.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randint.h>
#ifdef WITH_CUDA
#include <ATen/cuda/CUDAGeneratorImpl.h>
#endif
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
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

// The functions named in `host._DRIVER`, or what a test puts in their place.
struct Driver {
  int (*launch)(void* function, unsigned grid, unsigned, unsigned, unsigned threads, unsigned, unsigned,
                unsigned shared, void* stream, void** arguments, void** extra);
  int (*get_context)(void** context);
  int (*set_context)(void* context);
  int (*is_capturing)(void* stream, int* status);
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
  Kernel forward, backward, forward_by_number;  // the last is passed its seed, if there is one
};

// All that a kernel's parameters can be, as `host.py` numbers them.
struct Values {
  const void *written, *logits, *seed, *tau, *grad;
  float tau_value, scale_value;
  int32_t rows;
  int64_t number;
};
constexpr int64_t PLACES = 9;

static void launch(const Plan& plan, const Kernel& kernel, void* stream, Values v) {
  void* places[PLACES] = {&v.written,   &v.logits,      &v.seed, &v.tau,   &v.grad,
                          &v.tau_value, &v.scale_value, &v.rows, &v.number};
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
  std::shared_ptr<const Plan> plan;
  void* stream = nullptr;

  bool draws() const { return tau_f.defined() || tau_f_value != 0; }
};

using Key = std::array<int64_t, 4>;
static std::map<Key, std::shared_ptr<const Plan>> plans;
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

static std::shared_ptr<const Plan> find_plan(const Tensor& logits, const Call& call) {
  const std::lock_guard<std::mutex> guard(plans_lock);
  const auto found = plans.find(key_of(logits, call));
  return found == plans.end() ? nullptr : found->second;
}

// --- the seed -------------------------------------------------------------------------------------------------------

// What torch.randint(1 << 62, (1,)) draws on CUDA: Philox 4x32 of ten rounds, the generator's seed its key. `host.py`
// compares the two before this one is used. It takes less time than a kernel.
static int64_t drawn_number(int64_t seed, int64_t offset) {
  auto key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(static_cast<uint64_t>(seed) >> 32);
  const auto counter = static_cast<uint64_t>(offset) / 4;
  uint32_t x0 = static_cast<uint32_t>(counter), x1 = static_cast<uint32_t>(counter >> 32), x2 = 0, x3 = 0;
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * x0, b = uint64_t{0xCD9E8D57} * x2;
    x0 = static_cast<uint32_t>(b >> 32) ^ x1 ^ key0;
    x1 = static_cast<uint32_t>(b);
    x2 = static_cast<uint32_t>(a >> 32) ^ x3 ^ key1;
    x3 = static_cast<uint32_t>(a);
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return ((static_cast<int64_t>(x0) << 32) | x1) & ((int64_t{1} << 62) - 1);
}

// The next seed of a device's generator, drawn here.
static int64_t draw_number(c10::Device device) {
#ifdef WITH_CUDA
  if (device.is_cuda()) {
    auto* generator = at::globalContext().defaultGenerator(device).unsafeGetGeneratorImpl();
    const std::lock_guard<std::mutex> guard(generator->mutex_);
    const auto state = static_cast<at::CUDAGeneratorImpl*>(generator)->philox_cuda_state(4);
    TORCH_CHECK(!state.captured_, "a CUDA graph is captured on a stream that did not say so");
    return drawn_number(static_cast<int64_t>(state.seed_.val), static_cast<int64_t>(state.offset_.val));
  }
#endif
  return at::randint(int64_t{1} << 62, {1}, at::kLong).item<int64_t>();
}

// A captured graph draws at each replay, and so on the device.
static bool is_captured(void* stream) {
  int status = 0;
  return driver.is_capturing(stream, &status) != 0 || status != 0;
}

// --- forward and backward -------------------------------------------------------------------------------------------

static int32_t rows_of(const Tensor& logits, const Plan& plan) {
  return static_cast<int32_t>(logits.numel() / plan.width);
}

static Tensor run_forward(const Tensor& logits, const Call& call, Tensor& seed) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const c10::DeviceGuard guard(logits.device());
  const Plan& plan = *call.plan;
  const bool by_number = plan.forward_by_number.function && !is_captured(call.stream);
  int64_t number = 0;
  if (by_number)
    number = draw_number(logits.device());
  else if (call.draws())
    seed = at::randint(int64_t{1} << 62, {1}, logits.options().dtype(at::kLong));  // as `noise.draw_seed`
  Tensor z = at::empty_like(logits);
  const Values values{address(z), address(logits), address(seed), address(call.tau_f), nullptr,
                      static_cast<float>(call.tau_f_value), 1.0f, rows_of(logits, plan), number};
  launch(plan, by_number ? plan.forward_by_number : plan.forward, call.stream, values);
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
                      static_cast<float>(tau_value), 1.0f, rows_of(logits, plan), 0};
  launch(plan, plan.backward, stream, values);
  return out;
}

// True for memory and nothing else: no subclass, no transform's wrapper, no sign still to be applied, no tangent.
static bool is_plain(const Tensor& tensor) {
  using c10::DispatchKey;
  static const c10::DispatchKeySet usual{DispatchKey::CPU,           DispatchKey::CUDA,        DispatchKey::AutogradCPU,
                                         DispatchKey::AutogradCUDA,  DispatchKey::AutocastCPU, DispatchKey::AutocastCUDA,
                                         DispatchKey::ADInplaceOrView};
  return (tensor.key_set().raw_repr() & ~usual.raw_repr()) == 0 && !tensor._fw_grad(/*level=*/0).defined();
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

// True for nothing, or a seed or a temperature as the kernels read it.
static bool is_number(const Tensor& tensor, at::ScalarType dtype, const Tensor& logits) {
  return !tensor.defined() ||
         (tensor.scalar_type() == dtype && tensor.device() == logits.device() && is_stored(tensor));
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

// The gradient in general: by Python.
struct Choose {
  static constexpr bool is_traceable = true;

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    return {ask_python(grads[0], saved[0], saved[1], saved[2], ctx->saved_data["tau"].toDouble(),
                       ctx->saved_data["categorical"].toBool())};
  }
};

// A node of torch's for C++ functions, without what they do at each call for the sake of all cases.
struct Node : torch::autograd::CppNode<Choose> {
  std::shared_ptr<const Plan> plan;
  void* stream = nullptr;  // on which autograd runs backward too
  double tau_value = 0;

  std::string name() const override { return "decoupled_st::Choose"; }

  // Always so within autograd's engine. A node that is called by hand runs on its caller's stream.
  bool is_on_stream() const {
    const c10::Stream own = input_metadata(0).stream();
    return c10::impl::VirtualGuardImpl(own.device_type()).getStream(own.device()) == own;
  }

  variable_list apply(variable_list&& grads) override {
    // Grad mode enabled: the gradient is to be differentiated.
    if (!at::GradMode::is_enabled() && !is_watched() && grads[0].defined() && is_on_stream()) {
      const std::lock_guard<std::mutex> guard(mutex_);
      const auto saved = ctx_.get_saved_variables();
      const Tensor &logits = saved[0], &seed = saved[1], &tau = saved[2];
      // What was saved may come back otherwise, by a hook.
      if (fits(grads[0], logits) && is_stored(logits) && is_number(seed, at::kLong, logits) &&
          is_number(tau, at::kFloat, logits))
        return {run_backward(*plan, stream, grads[0], logits, seed, tau, tau_value)};
    }
    return CppNode::apply(std::move(grads));
  }
};

// torch holds its nodes by one or the other.
template <class N>
static auto make_node() {
  if constexpr (std::is_base_of_v<c10::intrusive_ptr_target, N>)
    return c10::make_intrusive<N>();
  else
    return std::shared_ptr<N>(new N(), [](N* node) { deleteNode(node); });
}

static Tensor apply(const Tensor& logits, const Call& call) {
  auto node = make_node<Node>();
  Tensor seed;
  Tensor z = run_forward(logits, call, seed);
  node->plan = call.plan;
  node->stream = call.stream;
  node->tau_value = call.tau_b_value;
  node->set_ctx_grad_fn(node);
  node->set_next_edges(torch::autograd::collect_next_edges(logits));
  node->is_variable_input_ = {true};
  node->output_info_.emplace_back(z);
  node->ctx_.saved_data["tau"] = call.tau_b_value;
  node->ctx_.saved_data["categorical"] = call.categorical;
  node->ctx_.save_for_backward({logits, call.perturbed ? seed : Tensor(), call.tau_b});
  node->save_variables_to_ctx();
  torch::autograd::create_gradient_edge(z, std::move(node));
  return z;
}

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
  if (!call.plan || logits.numel() > MOST || !is_stored(logits) || !is_number(call.tau_f, at::kFloat, logits) ||
      !is_number(call.tau_b, at::kFloat, logits))
    return std::nullopt;
  if (logits.requires_grad() && at::GradMode::is_enabled()) return apply(logits, call);
  Tensor seed;
  return run_forward(logits, call, seed);
}

// function, threads, bytes of shared memory, parameters
static Kernel as_kernel(at::IntArrayRef told) {
  if (told.empty()) return {};
  Kernel kernel{reinterpret_cast<void*>(told.at(0)), static_cast<unsigned>(told.at(1)),
                static_cast<unsigned>(told.at(2)), told.slice(3).vec()};
  TORCH_CHECK(kernel.parameters.size() <= 14, "too many parameters");
  for (const auto parameter : kernel.parameters) TORCH_CHECK(0 <= parameter && parameter < PLACES, "no such parameter");
  return kernel;
}

// From now on calls of this kind are made here.
static void learn(const Tensor& logits, double tau_f, double tau_b, bool categorical, bool perturbed,
                  const MaybeTensor& tau_f_at, const MaybeTensor& tau_b_at, int64_t height,
                  at::IntArrayRef forward, at::IntArrayRef backward, at::IntArrayRef forward_by_number) {
  if (logits.numel() > MOST) return;
  const Call call = as_call(categorical, perturbed, tau_f, tau_b, tau_f_at, tau_b_at);
  const c10::DeviceGuard guard(logits.device());
  auto plan = std::make_shared<Plan>();
  plan->width = categorical ? logits.size(-1) : 1;
  plan->height = height;
  plan->forward = as_kernel(forward);
  plan->backward = as_kernel(backward);
  plan->forward_by_number = as_kernel(forward_by_number);
  if (driver.get_context(&plan->context) != 0 || !plan->context) return;
  const std::lock_guard<std::mutex> lock(plans_lock);
  plans.emplace(key_of(logits, call), std::move(plan));
}

// With this driver, and nothing learned yet.
static void start(at::IntArrayRef addresses) {
  driver = {reinterpret_cast<decltype(driver.launch)>(addresses.at(0)),
            reinterpret_cast<decltype(driver.get_context)>(addresses.at(1)),
            reinterpret_cast<decltype(driver.set_context)>(addresses.at(2)),
            reinterpret_cast<decltype(driver.is_capturing)>(addresses.at(3))};
  const std::lock_guard<std::mutex> lock(plans_lock);
  plans.clear();
}

}  // namespace decoupled_st

TORCH_LIBRARY_FRAGMENT(decoupled_st, m) {
  m.def("host_start(int[] addresses) -> ()", &decoupled_st::start);
  m.def(
      "host_learn(Tensor logits, float tau_f, float tau_b, bool categorical, bool perturbed, Tensor? tau_f_at, "
      "Tensor? tau_b_at, int height, int[] forward, int[] backward, int[] forward_by_number) -> ()",
      &decoupled_st::learn);
  m.def(
      "host_choose(Tensor logits, float tau_f, float tau_b, bool categorical, bool perturbed, int stream, "
      "Tensor? tau_f_at=None, Tensor? tau_b_at=None) -> Tensor?",
      &decoupled_st::choose);
  m.def("host_number(int seed, int offset) -> int", &decoupled_st::drawn_number);
  m.def(
      "host_gradient(Tensor grad, Tensor logits, Tensor? seed, Tensor? tau, float tau_value, bool categorical) -> "
      "Tensor");
}
