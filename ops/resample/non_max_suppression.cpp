// NonMaxSuppression: per image and class, selects the boxes with the highest scores that do not overlap a selected one
// too much. In float32, as the models were trained and tested: a comparison with the threshold decides.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ops/core/checks.h"
#include "ops/core/shape_args.h"
#include "ops/core/whole_op.h"

namespace lenslet {

namespace {

struct Box {
  float top, left, bottom, right, area;
};

// From any two opposite corners, or from centre and size.
Box box_of(const float* p, bool centre) {
  const float a[] = {centre ? p[1] - p[3] / 2 : p[0], centre ? p[0] - p[2] / 2 : p[1]};
  const float b[] = {centre ? p[1] + p[3] / 2 : p[2], centre ? p[0] + p[2] / 2 : p[3]};
  Box box{std::min(a[0], b[0]), std::min(a[1], b[1]), std::max(a[0], b[0]), std::max(a[1], b[1]), 0};
  box.area = (box.bottom - box.top) * (box.right - box.left);
  return box;
}

bool covers(const Box& a, const Box& b, float threshold) {
  const float height = std::max(0.0F, std::min(a.bottom, b.bottom) - std::max(a.top, b.top));
  const float width = std::max(0.0F, std::min(a.right, b.right) - std::max(a.left, b.left));
  const float common = height * width;
  return common / (a.area + b.area - common) > threshold;
}

class NonMaxSuppression final : public WholeOp {
 public:
  explicit NonMaxSuppression(const NodeSpec& spec) {
    AttributeReader reader(spec);
    centre_ = reader.flag("center_point_box", false);
    reader.finish();
  }

  std::string_view type() const override { return "NonMaxSuppression"; }
  AttributeList attributes() const override { return {{"center_point_box", std::int64_t{centre_}}}; }

  void check(std::span<const InputInfo> inputs) const override {
    const TensorType &boxes = required_input(inputs, 0, "boxes"), &scores = required_input(inputs, 1, "scores");
    require_dtype("boxes", boxes.dtype, {DType::f32});
    require_dtype("scores", scores.dtype, {DType::f32});
    require_rank("boxes", boxes.shape, 3, 3);
    require_rank("scores", scores.shape, 3, 3);
    require_shape("boxes", boxes.shape, {scores.shape[0], scores.shape[2], 4});
    constexpr std::string_view names[] = {"max_output_boxes_per_class", "iou_threshold", "score_threshold"};
    for (std::size_t i = 2; i < 5; ++i) {
      if (!present(inputs, i)) continue;
      require_dtype(names[i - 2], inputs[i].type.dtype, {i == 2 ? DType::i64 : DType::f32});
      if (inputs[i].type.shape.elems() != 1)
        throw Error(ErrorKind::invalid_model,
                    fmt::format("{} must be a scalar, not {}", names[i - 2], inputs[i].type.shape.str()));
    }
  }

  std::vector<Shape> bounds(std::span<const InputInfo> inputs) const override {
    const Shape& scores = inputs[1].type.shape;
    std::int64_t most = present(inputs, 2) ? scores[2] : 0;
    if (most > 0 && inputs[2].constant != nullptr)
      most = std::clamp<std::int64_t>(inputs[2].constant->values<std::int64_t>()[0], 0, most);
    return {{multiply_dims(multiply_dims(scores[0], scores[1]), most), 3}};
  }

  std::vector<Tensor> compute(std::span<const Tensor> inputs) const override {
    const Tensor &boxes = inputs[0], &scores = inputs[1];
    const std::int64_t most = present(inputs, 2) ? inputs[2].values<std::int64_t>()[0] : 0;
    const float iou = present(inputs, 3) ? inputs[3].values<float>()[0] : 0.0F;
    const float* const least = present(inputs, 4) ? inputs[4].values<float>().data() : nullptr;
    if (!(iou >= 0 && iou <= 1)) throw Error(ErrorKind::invalid_argument, fmt::format("iou_threshold is {}", iou));

    const std::int64_t images = scores.shape()[0], classes = scores.shape()[1], count = scores.shape()[2];
    std::vector<Box> of_image(static_cast<std::size_t>(count));
    // The best on top; the first of equals.
    struct Scored {
      float score;
      std::int64_t box;
      bool operator<(const Scored& other) const {
        return score < other.score || (score == other.score && box > other.box);
      }
    };
    std::vector<Scored> heap;  // few are taken out
    std::vector<Box> kept;
    std::vector<std::array<std::int64_t, 3>> selected;
    for (std::int64_t image = 0; image < images; ++image) {
      for (std::int64_t i = 0; i < count; ++i)
        of_image[static_cast<std::size_t>(i)] = box_of(boxes.values<float>().data() + (image * count + i) * 4, centre_);
      for (std::int64_t c = 0; c < classes; ++c) {
        const float* const score = scores.values<float>().data() + (image * classes + c) * count;
        heap.clear();
        kept.clear();
        for (std::int64_t i = 0; i < count; ++i)
          if (least == nullptr ? score[i] == score[i] : score[i] > *least) heap.push_back({score[i], i});
        std::make_heap(heap.begin(), heap.end());
        for (; !heap.empty() && static_cast<std::int64_t>(kept.size()) < most; heap.pop_back()) {
          std::pop_heap(heap.begin(), heap.end());
          const std::int64_t i = heap.back().box;
          const Box& box = of_image[static_cast<std::size_t>(i)];
          if (std::any_of(kept.begin(), kept.end(), [&](const Box& other) { return covers(other, box, iou); }))
            continue;
          kept.push_back(box);
          selected.push_back({image, c, i});
        }
      }
    }
    Tensor y(DType::i64, Shape{static_cast<std::int64_t>(selected.size()), 3});
    for (std::size_t i = 0; i < selected.size(); ++i)
      std::ranges::copy(selected[i], y.values<std::int64_t>().begin() + static_cast<std::ptrdiff_t>(3 * i));
    return {y};
  }

 private:
  bool centre_;
};

constexpr SimpleKernel kernels[] = {{.types = dtypes<Types<float>>, .bind = bind_whole}};

}  // namespace

OpParts non_max_suppression() { return {make_from<NonMaxSuppression>, kernels}; }

}  // namespace lenslet
