// DepthToSpace and SpaceToDepth: b x b blocks of pixels <-> channels.
//   DCR: y[n, c, h*b + i, w*b + j] = x[n, (i*b + j)*C + c, h, w]
//   CRD: y[n, c, h*b + i, w*b + j] = x[n, c*b*b + i*b + j, h, w]
// SpaceToDepth is the inverse of DCR.

#include <fmt/format.h>

#include "ops/core/broadcast.h"
#include "ops/core/makers.h"
#include "ops/core/shape_args.h"
#include "ops/core/strided_copy.h"
#include "ops/core/type_check.h"
#include "ops/movement/strided_copy_cuda.h"

namespace lenslet {

namespace {

enum class Mode { depth_column_row, column_row_depth };

std::int64_t parse_block(AttributeReader& reader) {
  const std::int64_t block = reader.required_integer("blocksize");
  // Larger than any image side that fits the limits; the square does not overflow.
  if (block < 1 || block > (1 << 20))
    throw Error(ErrorKind::invalid_model, fmt::format("blocksize={} makes no sense", block));
  return block;
}

const TensorType& image_input(std::span<const InputInfo> inputs) {
  const TensorType& data = required_input(inputs, 0, "input");
  if (data.shape.rank() != 4)
    throw Error(ErrorKind::invalid_model, fmt::format("input must be [N,C,H,W], not {}", data.shape.str()));
  return data;
}

/// Element strides of the six-fold index n, c, h, i, w, j of the finer image's pixels.
struct BlockStrides {
  std::int64_t n = 0, c = 0, h = 0, i = 0, w = 0, j = 0;
};

BlockStrides of_image(const Tensor& image, std::int64_t block) {
  const auto s = element_strides(image.shape(), image.format());
  return {s[0], s[1], block * s[2], s[2], block * s[3], s[3]};
}

/// `c_count` channels of the image.
BlockStrides of_depth(const Tensor& depth, std::int64_t block, std::int64_t c_count, Mode mode) {
  const auto s = element_strides(depth.shape(), depth.format());
  if (mode == Mode::depth_column_row) return {s[0], s[1], s[2], block * c_count * s[1], s[3], c_count * s[1]};
  return {s[0], block * block * s[1], s[2], block * s[1], s[3], s[1]};
}

// Loops in the memory order of the output, so that it is written straight through.
StridedLoops block_loops(const BlockStrides& f, const Tensor& to, const BlockStrides& t, const Shape& depth,
                         std::int64_t block, std::int64_t c_count, bool to_image) {
  const std::int64_t n = depth[0], h = depth[2], w = depth[3];
  StridedLoops loops;
  loops.add(n, f.n, t.n);
  const auto add_channels = [&] { loops.add(c_count, f.c, t.c); };
  const auto add_block = [&] {
    loops.add(block, f.i, t.i);
    loops.add(block, f.j, t.j);
  };
  const bool last = to.format() == formats::nhwc;
  if (to_image) {
    if (!last) add_channels();
    loops.add(h, f.h, t.h);
    loops.add(block, f.i, t.i);
    loops.add(w, f.w, t.w);
    loops.add(block, f.j, t.j);
    if (last) add_channels();
  } else {
    if (!last) {
      add_block();
      add_channels();
    }
    loops.add(h, f.h, t.h);
    loops.add(w, f.w, t.w);
    if (last) {
      add_block();
      add_channels();
    }
  }
  return loops;
}

/// Both ways: one strided copy in any layout.
class BlockOp : public Op {
 public:
  bool runs_in(Format, std::span<const InputInfo>) const override { return true; }
  double tolerance(std::span<const InputInfo>) const override { return 0; }
  void run_cpu(const RunContext& context) const override {
    const Tensor& from = context.inputs[0];
    Tensor& to = context.outputs[0];
    strided_copy(dtype_bytes(to.dtype()), loops(from, to), from.data(), to.data(), context.pool);
  }
  std::optional<std::string> refuse_cuda(std::span<const InputInfo>) const override { return std::nullopt; }
  void run_cuda(const CudaRun& run) const override {
    const Tensor& from = run.inputs[0];
    Tensor& to = run.outputs[0];
    if constexpr (cuda_built)
      cuda::strided_copy(run.context, dtype_bytes(to.dtype()), loops(from, to), from.data(), to.data());
  }

 private:
  virtual StridedLoops loops(const Tensor& from, const Tensor& to) const = 0;
};

class DepthToSpace final : public BlockOp {
 public:
  DepthToSpace(std::int64_t block, Mode mode) : block_(block), mode_(mode) {}

  std::string_view type() const override { return "DepthToSpace"; }
  AttributeList attributes() const override {
    return {{"blocksize", block_}, {"mode", std::string(mode_ == Mode::depth_column_row ? "DCR" : "CRD")}};
  }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& data = image_input(inputs);
    const Shape& s = data.shape;
    if (s[1] % (block_ * block_) != 0)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("{} channels cannot make blocks of {}x{} pixels", s[1], block_, block_));
    return {
        {data.dtype, Shape{s[0], s[1] / (block_ * block_), multiply_dims(s[2], block_), multiply_dims(s[3], block_)}}};
  }

 private:
  StridedLoops loops(const Tensor& from, const Tensor& to) const override {
    const std::int64_t c_count = to.shape()[1];
    return block_loops(of_depth(from, block_, c_count, mode_), to, of_image(to, block_), from.shape(), block_, c_count,
                       true);
  }

  std::int64_t block_;
  Mode mode_;
};

class SpaceToDepth final : public BlockOp {
 public:
  explicit SpaceToDepth(std::int64_t block) : block_(block) {}

  std::string_view type() const override { return "SpaceToDepth"; }
  AttributeList attributes() const override { return {{"blocksize", block_}}; }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& data = image_input(inputs);
    const Shape& s = data.shape;
    if (s[2] % block_ != 0 || s[3] % block_ != 0)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("{} x {} pixels do not divide into blocks of {}", s[2], s[3], block_));
    return {{data.dtype, Shape{s[0], multiply_dims(s[1], block_ * block_), s[2] / block_, s[3] / block_}}};
  }

 private:
  StridedLoops loops(const Tensor& from, const Tensor& to) const override {
    const std::int64_t c_count = from.shape()[1];
    return block_loops(of_image(from, block_), to, of_depth(to, block_, c_count, Mode::depth_column_row), to.shape(),
                       block_, c_count, false);
  }

  std::int64_t block_;
};

}  // namespace

std::shared_ptr<const Op> make_depth_to_space(const NodeSpec& spec) {
  AttributeReader reader(spec.attributes);
  const std::int64_t block = parse_block(reader);
  const std::string mode = reader.text("mode", "DCR");
  reader.finish();
  if (mode != "DCR" && mode != "CRD")
    throw Error(ErrorKind::invalid_model, fmt::format("mode={} is neither DCR nor CRD", mode));
  return std::make_shared<DepthToSpace>(block, mode == "DCR" ? Mode::depth_column_row : Mode::column_row_depth);
}

std::shared_ptr<const Op> make_space_to_depth(const NodeSpec& spec) {
  AttributeReader reader(spec.attributes);
  const std::int64_t block = parse_block(reader);
  reader.finish();
  return std::make_shared<SpaceToDepth>(block);
}

}  // namespace lenslet
