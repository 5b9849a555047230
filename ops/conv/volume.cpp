// 3-D Conv and ConvTranspose, on either device: the T input depths that one output depth reads become channels of an
// image, [N*O,C*T,H,W], so that all planes are one 2-D convolution, run by the operator's own kernels; its output is
// then copied into place. Conv's w already has that layout, [K,C/groups*T,R,S]; ConvTranspose's, with T behind K, is
// reordered.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "base/cuda_built.h"
#include "ops/conv/conv_transpose.h"
#include "ops/core/checks.h"
#include "ops/core/config_text.h"
#include "ops/core/strided_copy.h"
#include "ops/movement/moves.h"
#include "ops/movement/strided_copy_cuda.h"

namespace lenslet {
namespace {

constexpr std::size_t residual = ConvOp::residual, most_inputs = residual + 1;
constexpr std::size_t x_input = ConvOp::input, w_input = ConvOp::filter;
static_assert(ConvTransposeOp::input == x_input && ConvTransposeOp::filter == w_input);

struct Copy {
  StridedLoops loops = {};
  std::int64_t from = 0, to = 0;  ///< elements
};

/// A 3-D node and its planes.
class Volume {
 public:
  Volume(const Problem& node, DeviceKind device)
      : transposed_(node.op().type() == "ConvTranspose"), x_(node.shape(x_input)) {
    std::vector<InputInfo> infos(node.inputs().begin(), node.inputs().end());
    const Shape &w = node.shape(w_input), &y = node.output_shape();
    depth_ = transposed_ ? node.as<ConvTransposeOp>().depth(infos) : node.as<ConvOp>().depth(infos);
    infos[x_input] = {true, {DType::f32, plane_images(x_, depth_)}};
    infos[w_input].type.shape = transposed_ ? Shape{w[0] * w[2], w[1], w[3], w[4]} : plane_filters(w);
    Tensor filters;
    if (infos[w_input].constant != nullptr) {
      filters = transposed_ ? ordered(*infos[w_input].constant, infos[w_input].type.shape)
                            : infos[w_input].constant->reshaped(infos[w_input].type.shape);
      infos[w_input].constant = &filters;
    }
    if (present(infos, residual)) infos[residual] = {true, {DType::f32, {y[0] * y[2], y[1], y[3], y[4]}}};
    flat_ = device == DeviceKind::cpu && reads_each_place(node);
    if (flat_) {
      const auto one_line = [](const Shape& shape) {
        return Shape{shape[0], shape[1], 1, shape[2] * shape[3] * shape[4]};
      };
      infos[x_input].type.shape = one_line(x_);
      if (present(infos, residual)) infos[residual].type.shape = one_line(y);
    }
    planes_ = std::make_unique<const Problem>(
        transposed_ ? node.as<ConvTransposeOp>().planes() : node.as<ConvOp>().planes(), infos);
  }

  const Problem& planes() const { return *planes_; }
  /// Whether the node is one convolution of lines, [N,C,1,D*H*W], on its nchw tensors: nothing is copied then.
  bool flat() const { return flat_; }
  bool knows_filters() const { return planes_->inputs()[w_input].constant != nullptr; }
  bool adds() const { return present(planes_->inputs(), residual); }

  /// Copies from x to its images, one a tap; elements that none writes are zero.
  std::vector<Copy> gather(const Format& format) const {
    const Shape& images = planes_->shape(x_input);
    const AxisSteps from = element_strides(x_, formats::nchw), to = element_strides(images, format);
    std::vector<Copy> copies;
    for (std::int64_t tap = 0; tap < depth_.taps; ++tap) {
      // Positions `i` of the side with unit steps correspond to i * stride + shift on the other.
      const std::int64_t shift = tap * depth_.dilation - depth_.pad, stride = depth_.stride;
      const std::int64_t here = transposed_ ? depth_.in : depth_.out, there = transposed_ ? depth_.out : depth_.in;
      const std::int64_t first = shift < 0 ? (-shift + stride - 1) / stride : 0;
      const std::int64_t last = shift >= there ? 0 : std::min(here, (there - 1 - shift) / stride + 1);
      if (first >= last) continue;
      const std::int64_t in = transposed_ ? first : first * stride + shift;
      const std::int64_t out = transposed_ ? first * stride + shift : first;
      copies.push_back(
          {plane_loops({last - first, from[2] * (transposed_ ? 1 : stride), to[0] * (transposed_ ? stride : 1)}, x_[1],
                       {from[0], from[1], from[3]}, {depth_.out * to[0], depth_.taps * to[1]}, to, images, format),
           in * from[2], out * to[0] + tap * to[1]});
    }
    return copies;
  }
  /// [C,K,T,R,S] as [C*T,K,R,S].
  static Copy filter_order(const Shape& w) {
    const std::int64_t taps = w[3] * w[4];
    Copy copy;
    copy.loops.add(w[0], w[1] * w[2] * taps, w[1] * w[2] * taps);
    copy.loops.add(w[2], taps, w[1] * taps);
    copy.loops.add(w[1], w[2] * taps, taps);
    copy.loops.add(taps, 1, 1);
    return copy;
  }
  /// Copies of computed filters whose layout differs from the planes'.
  std::vector<Copy> filter_copies(const Shape& w) const {
    return transposed_ && !knows_filters() ? std::vector{filter_order(w)} : std::vector<Copy>();
  }
  /// Whether gather() writes all elements of the images.
  bool fills() const {
    std::int64_t written = 0;
    for (const Copy& copy : gather(formats::nchw)) written += copy.loops.count();
    return written == planes_->shape(x_input).elems();
  }

  /// Copy from the result's images to y, or back for a residual.
  Copy scatter(const Format& format, bool back) const {
    const Shape& images = planes_->output_shape();
    const Shape y{x_[0], images[1], depth_.out, images[2], images[3]};
    const AxisSteps of_y = element_strides(y, formats::nchw), of_images = element_strides(images, format);
    Copy copy;
    for (const auto& [dim, at_image, at_y] :
         {Step{y[0], depth_.out * of_images[0], of_y[0]}, Step{y[1], of_images[1], of_y[1]},
          Step{y[2], of_images[0], of_y[2]}, Step{y[3], of_images[2], of_y[3]}, Step{y[4], of_images[3], of_y[4]}})
      copy.loops.add(dim, back ? at_y : at_image, back ? at_image : at_y);
    return copy;
  }

 private:
  struct Step {
    std::int64_t dim, from, to;
  };

  /// 1x1x1, without strides and pads.
  bool reads_each_place(const Problem& node) const {
    if (transposed_ || depth_.taps != 1 || depth_.stride != 1 || depth_.pad != 0 || depth_.out != depth_.in)
      return false;
    // The operator's own strides: conv_problem() gives 1 for a single output, and a line of images has more.
    const auto strides = integers_attribute(node.op(), "strides");
    if (!strides || std::ranges::any_of(*strides, [](std::int64_t stride) { return stride != 1; })) return false;
    const ConvProblem p = conv_problem(node);
    return p.r * p.s == 1 && !p.padded();
  }

  static StridedLoops plane_loops(const Step& depth, std::int64_t channels, std::array<std::int64_t, 3> from,
                                  std::array<std::int64_t, 2> over, const AxisSteps& to, const Shape& images,
                                  const Format& format) {
    const Step c{channels, from[1], over[1]}, h{images[2], from[2], to[2]}, w{images[3], 1, to[3]};
    StridedLoops loops;
    loops.add(images[0] * to[0] / over[0], from[0], over[0]);  // N
    loops.add(depth.dim, depth.from, depth.to);
    for (const Step& step : format == formats::nhwc ? std::array{h, w, c} : std::array{c, h, w})
      loops.add(step.dim, step.from, step.to);
    return loops;
  }

  Tensor ordered(const Tensor& w, const Shape& shape) const {
    Tensor filters(DType::f32, shape);
    const Copy copy = filter_order(w.shape());
    LoopCursor at(copy.loops);
    for (std::int64_t count = copy.loops.count(); count > 0; --count, at.next())
      filters.values<float>()[static_cast<std::size_t>(at.to)] = w.values<float>()[static_cast<std::size_t>(at.from)];
    return filters;
  }

  bool transposed_, flat_ = false;
  Shape x_;
  DepthAxis depth_;
  std::unique_ptr<const Problem> planes_;
};

/// Kernel and candidate of the planes.
struct PlanesChoice {
  const Kernel* kernel = nullptr;
  Candidate candidate = {};
};

/// "planes=NAME[tile=128x64|split_k=4] format=nhwc".
std::string written(const PlanesChoice& choice) {
  std::string config = choice.candidate.config;
  std::replace(config.begin(), config.end(), ' ', '|');
  return ConfigWriter()
      .add("planes", fmt::format("{}[{}]", choice.kernel->name(), config))
      .add("nhwc", choice.candidate.outputs[0] == formats::nhwc)
      .str();
}

PlanesChoice read(const Volume& volume, const Candidate& whole, DeviceKind device) {
  ConfigReader reader(whole.config);
  const std::string_view text = reader.word("planes");
  const Format format = reader.flag("nhwc") ? formats::nhwc : formats::nchw;
  const std::size_t bracket = text.find('[');
  if (bracket == text.npos || text.back() != ']') reader.refuse("NAME[...] expected");
  PlanesChoice choice;
  choice.kernel = find_kernel(volume.planes().op().type(), device, text.substr(0, bracket));
  if (choice.kernel == nullptr || choice.kernel->name() == "planes") reader.refuse("no such algorithm");
  choice.candidate.config = text.substr(bracket + 1, text.size() - bracket - 2);
  std::replace(choice.candidate.config.begin(), choice.candidate.config.end(), '|', ' ');
  choice.candidate.inputs.assign(volume.planes().inputs().size(), formats::nchw);
  choice.candidate.inputs[x_input] = format;
  if (volume.adds()) choice.candidate.inputs[residual] = format;
  choice.candidate.outputs = {format};
  choice.candidate.reads = whole.reads;
  reader.finish();
  return choice;
}

class BoundVolume final : public BoundKernel {
 public:
  BoundVolume(const Volume& volume, const PlanesChoice& choice, const Binding& binding)
      : planes_(choice.kernel->bind({volume.planes(), choice.candidate, binding.device})),
        format_(choice.candidate.outputs[0]),
        images_(volume.planes().shape(x_input)),
        filters_(volume.planes().shape(w_input)),
        results_(volume.planes().output_shape()),
        flat_(volume.flat()),
        gather_(flat_ ? std::vector<Copy>() : volume.gather(format_)),
        fills_(flat_ || volume.fills()),
        filter_copies_(volume.filter_copies(binding.shape(w_input))),
        to_y_(flat_ ? std::vector<Copy>() : std::vector{volume.scatter(format_, false)}),
        from_residual_(volume.adds() && !flat_ ? std::vector{volume.scatter(format_, true)} : std::vector<Copy>()) {}

  std::size_t workspace_bytes() const override {
    const std::size_t copied = bytes_of(images_) + bytes_of(results_) * (from_residual_.empty() ? 1 : 2);
    return (flat_ ? 0 : copied) + (filter_copies_.empty() ? 0 : bytes_of(filters_)) + planes_->workspace_bytes();
  }

  void run(const KernelRun& run) const override {
    std::byte* at = run.workspace.data();
    const auto take = [&](const Shape& shape, const Format& format) {
      Tensor tensor = Tensor::view(DType::f32, shape, at, format);
      at += bytes_of(shape);
      return tensor;
    };
    std::array<Tensor, most_inputs> inputs;
    std::copy(run.inputs.begin(), run.inputs.end(), inputs.begin());
    const auto flat = [](const Tensor& tensor, const Shape& shape) {
      return Tensor::share(DType::f32, shape, nullptr, tensor.data());
    };
    inputs[x_input] = flat_ ? flat(run.inputs[x_input], images_) : take(images_, format_);
    if (!fills_) fill(run, 0, inputs[x_input]);
    copy(run, gather_, run.in<float>(x_input), inputs[x_input]);
    if (!filter_copies_.empty()) {
      inputs[w_input] = take(filters_, formats::nchw);
      copy(run, filter_copies_, run.in<float>(w_input), inputs[w_input]);
    } else if (!inputs[w_input].empty()) {
      inputs[w_input] = Tensor::share(DType::f32, filters_, nullptr, inputs[w_input].data());
    }
    if (!from_residual_.empty()) {
      inputs[residual] = take(results_, format_);
      copy(run, from_residual_, run.in<float>(residual), inputs[residual]);
    }
    if (flat_ && inputs[residual].data() != nullptr) inputs[residual] = flat(inputs[residual], results_);
    std::array<Tensor, 1> outputs{flat_ ? Tensor::view(DType::f32, results_, run.outputs[0].data(), format_)
                                        : take(results_, format_)};
    planes_->run({.inputs = std::span(inputs).first(run.inputs.size()),
                  .outputs = outputs,
                  .workspace = run.workspace.subspan(static_cast<std::size_t>(at - run.workspace.data())),
                  .blob = run.blob,
                  .pool = run.pool,
                  .cuda = run.cuda});
    copy(run, to_y_, static_cast<const float*>(outputs[0].data()), run.outputs[0]);
  }

 private:
  static std::size_t bytes_of(const Shape& shape) {
    constexpr std::size_t alignment = 256;
    return (static_cast<std::size_t>(shape.elems()) * sizeof(float) + alignment - 1) / alignment * alignment;
  }

  static void copy(const KernelRun& run, const std::vector<Copy>& copies, const float* from, Tensor& tensor) {
    auto* const to = static_cast<float*>(tensor.data());
    if constexpr (cuda_built)
      if (run.cuda != nullptr) {
        cuda::CopyBatch batch(*run.cuda, sizeof(float));
        for (const Copy& one : copies) batch.add(one.loops, from + one.from, to + one.to);
        return batch.flush();
      }
    for (const Copy& one : copies) strided_copy(sizeof(float), one.loops, from + one.from, to + one.to, *run.pool);
  }

  std::unique_ptr<const BoundKernel> planes_;
  Format format_;
  Shape images_, filters_, results_;
  bool flat_;
  std::vector<Copy> gather_;
  bool fills_;
  std::vector<Copy> filter_copies_, to_y_, from_residual_;
};

class Planes final : public Kernel {
 public:
  explicit Planes(DeviceKind device) : device_(device) {}
  std::string_view name() const override { return "planes"; }
  DeviceKind device() const override { return device_; }
  DTypeSet types() const override { return dtypes<Types<float>>; }

  /// The least estimate of the planes, in either format, plus copies at memory bandwidth.
  Offer offer(const Problem& node, const Target& target) const override {
    for (const DType dtype : {node.inputs()[x_input].type.dtype, node.outputs()[0].dtype})
      if (!types().contains(dtype))
        return Offer::refuse(fmt::format("convolution of {}; only {} is supported", to_string(dtype), types().str()));
    if (node.shape(x_input).rank() != 5) return Offer::refuse("it is not 3-D");
    const Volume volume(node, device_);
    PlanesChoice best;
    for (const Kernel* kernel : kernels_of(node.op().type(), device_)) {
      if (kernel->name() == name()) continue;
      for (Candidate& candidate : kernel->offer(volume.planes(), target).candidates) {
        const Format& format = candidate.outputs[0];
        const bool fits = (format == formats::nchw || format == formats::nhwc) && candidate.inputs[x_input] == format &&
                          (!volume.adds() || candidate.inputs[residual] == format) &&
                          (!volume.flat() || format == formats::nchw);
        if (!fits || (best.kernel != nullptr && candidate.estimated_us >= best.candidate.estimated_us)) continue;
        best = {kernel, std::move(candidate)};
      }
    }
    if (best.kernel == nullptr) return Offer::refuse("no algorithm takes its planes");
    Candidate whole;
    whole.config = written(best);
    whole.inputs.assign(node.inputs().size(), formats::nchw);
    whole.outputs = {formats::nchw};
    whole.tolerance = best.candidate.tolerance;
    whole.needs_cublas = best.candidate.needs_cublas;
    whole.reads = best.candidate.reads;
    const double copied = node.bytes() + volume.planes().bytes();
    whole.estimated_us = best.candidate.estimated_us;
    if (!volume.flat()) whole.estimated_us += 3 * target.device.launch_us + copied / target.device.bytes_per_us;
    whole.workspace_bytes = bind({node, whole, target.device})->workspace_bytes();
    return whole;
  }

  std::optional<BlobSpec> blob(const Problem& node, const Candidate& candidate) const override {
    const Volume volume(node, device_);
    const PlanesChoice choice = read(volume, candidate, device_);
    auto spec = choice.kernel->blob(volume.planes(), choice.candidate);
    if (spec) spec->key = fmt::format("planes of {} {} {}", node.op().type(), candidate.config, spec->key);
    return spec;
  }

  void prepare(const Problem& node, const Candidate& candidate, std::span<std::byte> blob) const override {
    const Volume volume(node, device_);
    const PlanesChoice choice = read(volume, candidate, device_);
    choice.kernel->prepare(volume.planes(), choice.candidate, blob);
  }

  std::unique_ptr<const BoundKernel> bind(const Binding& binding) const override {
    const Volume volume(binding.problem, device_);
    return std::make_unique<BoundVolume>(volume, read(volume, binding.candidate, device_), binding);
  }

 private:
  DeviceKind device_;
};

}  // namespace

const Kernel& conv_planes() {
  static const Planes kernel(DeviceKind::cpu);
  return kernel;
}
namespace cuda {
const Kernel& conv_planes() {
  static const Planes kernel(DeviceKind::cuda);
  return kernel;
}
}  // namespace cuda

}  // namespace lenslet
