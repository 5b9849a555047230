// fuse_attention over drawn movements of the operands.
#include <doctest/doctest.h>

#include <random>

#include "attention_builder.h"

using namespace lenslet;
using namespace lenslet::test;
using namespace lenslet::test::attention;

// Chains of drawn Transposes, Reshapes, Slices, Splits and Gathers above each operand: whatever strides can or cannot
// say, the result is that of the nodes.
TEST_CASE("fuse_attention/drawn_chains") {
  std::mt19937 random(11);
  const auto draw = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  int fused_count = 0;
  for (int round = 0; round < 60; ++round) {
    GraphBuilder b;
    int inputs = 0;
    /// A value of this shape, through up to three steps backwards.
    const auto operand = [&](Ints dims) {
      struct Step {
        int kind;
        Ints numbers;
        std::int64_t axis;
      };
      std::vector<Step> steps;
      for (std::int64_t left = draw(0, 4); left > 0; --left) {
        const std::int64_t axis = draw(0, static_cast<std::int64_t>(dims.size()) - 1);
        const auto at = static_cast<std::size_t>(axis);
        switch (draw(0, 4)) {
          case 0: {  // dims = perm of another shape
            Ints perm(dims.size()), old(dims.size());
            for (std::size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<std::int64_t>(i);
            std::shuffle(perm.begin(), perm.end(), random);
            for (std::size_t i = 0; i < perm.size(); ++i) old[static_cast<std::size_t>(perm[i])] = dims[i];
            steps.push_back({0, perm, 0});
            dims = old;
            break;
          }
          case 1: {  // two neighbours were one
            if (axis + 1 == static_cast<std::int64_t>(dims.size())) break;
            steps.push_back({1, dims, 0});
            dims[at] *= dims[at + 1];
            dims.erase(dims.begin() + axis + 1);
            break;
          }
          case 2: {  // a part, every second
            const std::int64_t start = draw(0, 2), step = draw(1, 2);
            steps.push_back({2, {start, start + (dims[at] - 1) * step + 1, step}, axis});
            dims[at] = start + dims[at] * step + 1;
            break;
          }
          case 3: {  // one of two or three
            if (dims.size() > 6) break;
            const std::int64_t of = draw(2, 3);
            steps.push_back({3, {draw(0, of - 1)}, axis});
            dims.insert(dims.begin() + axis, of);
            break;
          }
          default: {  // a half of a Split
            steps.push_back({4, {draw(0, 1)}, axis});
            dims[at] *= 2;
          }
        }
      }
      ValueId id = b.input("x" + std::to_string(inputs++), dims);
      if (draw(0, 1) == 0) id = b.node("Relu", {id});  // then an image of four axes is read in channels last
      for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
        const Ints& numbers = step->numbers;
        const auto one = [&](std::int64_t number) { return b.int64s({number}); };
        if (step->kind == 0) id = transpose(b, id, numbers);
        if (step->kind == 1)
          id = b.node("Reshape",
                      {id, b.constant(Tensor::of<std::int64_t>(Shape{std::int64_t(numbers.size())}, numbers))});
        if (step->kind == 2)
          id = b.node("Slice", {id, one(numbers[0]), one(numbers[1]), one(step->axis), one(numbers[2])});
        if (step->kind == 3) id = index(b, id, numbers[0], step->axis);
        if (step->kind == 4) {
          const ValueId first = b.node("Split", {id}, {{"axis", step->axis}}, 13, 2);
          id = numbers[0] == 0 ? first : first + 1;
        }
      }
      return id;
    };
    const std::int64_t l = draw(1, 4), s = draw(1, 4), d = draw(1, 3), e = draw(1, 3), m = draw(1, 2), c = draw(1, 2);
    ValueId q = operand({m, c, l, d}), k = operand({m, c, s, d}), v = operand({m, c, s, e});
    if (draw(0, 3) == 0) v = draw(0, 1) == 0 && d == e ? k : v;
    if (draw(0, 3) == 0) b.output(k);
    const ValueId shares = softmax(b, b.node("MatMul", {q, turned(b, k)}));
    if (draw(0, 4) == 0) {  // its transpose, as images have it
      const ValueId y = b.node("MatMul", {turned(b, v), turned(b, shares)});
      b.output(b.node("Relu", {reshape(b, y, {m, c * e, l, 1})}));
    } else {
      const ValueId y = b.node("MatMul", {shares, v});
      b.output(draw(0, 1) == 0 ? y : transpose(b, y, {0, 2, 1, 3}));
    }
    const Graph before = b.build(), fused = after(before, "fuse_attention");
    fused_count += count(fused, "Attention");
    CAPTURE(round);
    CHECK(worst_difference(before, fused) < 1e-5);
  }
  CHECK(fused_count > 50);
}
