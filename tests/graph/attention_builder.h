#pragma once
// Attention heads as exporters spell them, for the tests of fuse_attention.

#include <doctest/doctest.h>

#include <algorithm>

#include "graph_builder.h"

namespace lenslet::test::attention {

using Ints = std::vector<std::int64_t>;

inline ValueId reshape(GraphBuilder& b, ValueId x, std::initializer_list<std::int64_t> dims) {
  return b.node("Reshape", {x, b.int64s(dims)});
}
inline ValueId transpose(GraphBuilder& b, ValueId x, const Ints& perm) {
  return b.node("Transpose", {x}, {{"perm", perm}});
}
/// The last two of four axes exchanged.
inline ValueId turned(GraphBuilder& b, ValueId x) { return transpose(b, x, {0, 1, 3, 2}); }
inline ValueId index(GraphBuilder& b, ValueId x, std::int64_t at, std::int64_t axis = 0) {
  return b.node("Gather", {x, b.constant(Tensor::of<std::int64_t>(Shape{}, {at}))}, {{"axis", axis}});
}
inline ValueId times(GraphBuilder& b, ValueId x, float factor) { return b.node("Mul", {x, b.scalar(factor)}); }
inline ValueId softmax(GraphBuilder& b, ValueId x) { return b.node("Softmax", {x}, {{"axis", std::int64_t{-1}}}); }

inline constexpr std::int64_t n = 4, heads = 3, tokens = 6, size = 5;

struct Heads {
  ValueId q, k, v;
};
/// [n,heads,tokens,size] each, of a packed [n,tokens,3*heads*size] as ViT and Swin write it.
inline Heads packed(GraphBuilder& b, ValueId qkv) {
  const ValueId all = transpose(b, reshape(b, qkv, {n, tokens, 3, heads, size}), {2, 0, 3, 1, 4});
  return {index(b, all, 0), index(b, all, 1), index(b, all, -1)};
}
inline ValueId packed_input(GraphBuilder& b) { return b.input("qkv", {n, tokens, 3 * heads * size}); }
inline Heads apart(GraphBuilder& b) {
  return {b.input("q", {n, heads, tokens, size}), b.input("k", {n, heads, tokens, size}),
          b.input("v", {n, heads, tokens, size})};
}
inline ValueId scores(GraphBuilder& b, const Heads& h) {
  return b.node("MatMul", {h.q, transpose(b, h.k, {0, 1, 3, 2})});
}
inline ValueId joined(GraphBuilder& b, ValueId y) {
  return reshape(b, transpose(b, y, {0, 2, 1, 3}), {n, tokens, heads * size});
}

/// One Attention is left, and the results are equal.
inline const Node& check_fused(GraphBuilder& b, Graph& fused) {
  const Graph before = b.build();
  fused = after(before, "fuse_attention");
  CHECK(fused.nodes.size() == 1);
  CHECK(worst_difference(before, fused) < 1e-5);
  CHECK(worst_difference(before, after_all(before)) < 1e-5);
  return only(fused, "Attention");
}
inline Ints list(const Node& node, const char* name) { return integers_attribute(*node.op, name).value(); }
template <class T>
T attribute(const Node& node, std::string_view name) {
  const AttributeList all = node.op->attributes();
  const auto found = std::ranges::find(all, name, &AttributeList::value_type::first);
  REQUIRE(found != all.end());
  return std::get<T>(found->second);
}

}  // namespace lenslet::test::attention
