// patch_embedding: on CUDA, a Conv whose windows are patches becomes a 1x1 Conv; others stay.
#include <doctest/doctest.h>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Ints = std::vector<std::int64_t>;

PassContext on_cuda(const char* precision) {
  return {.target = {reference_gpu(), parse_numerics(precision)}, .device = "cuda:0"};
}

ValueId patches(GraphBuilder& b, ValueId x, const Shape& filter, const Ints& strides, const Ints& pads = {0, 0, 0, 0},
                const Ints& dilations = {1, 1}) {
  return b.node("Conv", {x, b.weights(filter), b.weights({filter[0]})},
                {{"strides", strides}, {"pads", pads}, {"dilations", dilations}});
}

}  // namespace

TEST_CASE("patch_embedding/patches_of_images") {
  GraphBuilder b;
  b.output(b.node("Relu", {patches(b, b.input("x", {2, 3, 48, 32}), {5, 3, 16, 16}, {16, 16})}));
  b.output(patches(b, b.input("z", {1, 1, 16, 24}), {3, 1, 8, 12}, {8, 12}));
  const Graph before = b.build(2);
  for (const char* precision : {"fp16", "bf16", "tf32"}) {
    const Graph found = after(before, "patch_embedding", on_cuda(precision));
    CHECK(worst_difference(before, found) < 1e-5);
    for (const Node& node : found.nodes)
      if (node.type() == "Conv") {
        const Shape& filter = found.value(node.inputs[1]).shape;
        CHECK((filter == Shape{5, 768, 1, 1} || filter == Shape{3, 96, 1, 1}));
      }
  }
  const Graph typed = after(after(before, "patch_embedding", on_cuda("fp16")), "assign_types", on_cuda("fp16"));
  for (const Node& node : typed.nodes)  // halves are moved
    if (node.type() == "Transpose") CHECK(typed.value(node.inputs[0]).dtype == DType::f16);
  for (const PassContext& context : {pass_context(), on_cuda("fp32")})
    CHECK(after(before, "patch_embedding", context).nodes.size() == before.nodes.size());
}

TEST_CASE("patch_embedding/others_stay") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 3, 48, 32});
  SUBCASE("windows overlap") { b.output(patches(b, x, {5, 3, 16, 16}, {8, 16})); }
  SUBCASE("pixels between windows") { b.output(patches(b, x, {5, 3, 8, 8}, {10, 8})); }
  SUBCASE("padding") { b.output(patches(b, x, {5, 3, 16, 16}, {16, 16}, {0, 0, 16, 0})); }
  SUBCASE("dilation") { b.output(patches(b, x, {5, 3, 8, 8}, {8, 8}, {0, 0, 0, 0}, {2, 1})); }
  SUBCASE("a rest of the image") { b.output(patches(b, x, {5, 3, 16, 12}, {16, 12})); }
  SUBCASE("few taps") { b.output(patches(b, x, {5, 3, 4, 4}, {4, 4})); }
  SUBCASE("many channels") { b.output(patches(b, b.conv(x, 3, 8, 1), {5, 8, 16, 16}, {16, 16})); }
  const Graph before = b.build(2), found = after(before, "patch_embedding", on_cuda("fp16"));
  CHECK(found.nodes.size() == before.nodes.size());
}
