#include <doctest/doctest.h>
#include <fmt/format.h>

#include <limits>
#include <string>
#include <vector>

#include "ops/core/op.h"
#include "tests/ops/op_harness.h"

using namespace lenslet;

namespace {

std::string message_of(const auto& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.message();
  }
  return {};
}

}  // namespace

TEST_CASE("attributes/values_and_fallbacks") {
  const AttributeList list{{"axis", std::int64_t{-1}},           {"alpha", 0.25},
                           {"mode", std::string("CRD")},         {"pads", std::vector<std::int64_t>{1, 2}},
                           {"scales", std::vector<double>{1.5}}, {"value", Tensor::of<float>(Shape{1}, {3.0F})}};
  AttributeReader reader(list);
  CHECK(reader.integer("axis", 7) == -1);
  CHECK(reader.required_integer("axis") == -1);
  CHECK(reader.real("alpha", 1) == 0.25);
  CHECK(reader.text("mode", "DCR") == "CRD");
  CHECK(reader.integers("pads") == std::vector<std::int64_t>{1, 2});
  CHECK(reader.reals("scales") == std::vector<double>{1.5});
  CHECK(reader.tensor("value")->values<float>()[0] == 3.0F);
  CHECK(reader.integer("absent", 7) == 7);
  CHECK(reader.text("absent", "DCR") == "DCR");
  CHECK(reader.integers("absent").empty());
  CHECK_FALSE(reader.tensor("absent").has_value());
  CHECK_NOTHROW(reader.finish());
}

TEST_CASE("attributes/wrong_kind_is_named") {
  const AttributeList list{{"axis", 1.5}, {"mode", std::int64_t{1}}};
  AttributeReader reader(list);
  CHECK(message_of([&] { reader.integer("axis", 0); }) == "attribute 'axis' must be an integer");
  CHECK(message_of([&] { reader.text("mode", ""); }) == "attribute 'mode' must be a string");
  CHECK(message_of([&] { reader.integers("axis"); }) == "attribute 'axis' must be a list of integers");
  CHECK(message_of([&] { reader.required_integer("to"); }) == "attribute 'to' is missing");
}

TEST_CASE("attributes/unknown_is_refused_by_name") {
  const AttributeList list{{"axis", std::int64_t{1}}, {"surprise", std::int64_t{1}}, {"harmless", 1.0}};
  AttributeReader reader(list);
  reader.integer("axis", 0);
  reader.ignore("harmless");
  CHECK(message_of([&] { reader.finish(); }).find("'surprise'") != std::string::npos);
}

// The extreme accepted values and the first refused ones, on both sides.
TEST_CASE("attributes/numbers_are_taken_to_their_limits_and_not_beyond") {
  using Ints = std::vector<std::int64_t>;
  constexpr std::int64_t large = std::int64_t{1} << 30, none = -1;
  const Tensor image = Tensor(DType::f32, {1, 4, 1, 1}), folded = Tensor(DType::f32, {1, 4, 1}),
               two = Tensor::of<std::int64_t>({2}, {2, 2}), filter(DType::f32, {1, 4, 1, 1}),
               offset(DType::f32, {1, 2, 1, 1});
  const test::OpCase unpool{.op = "MaxUnpool",
                            .attributes = {{"kernel_shape", Ints{1, 1}}},
                            .inputs = {image, Tensor(DType::i64, {1, 4, 1, 1})}},
      pool{.op = "MaxPool", .attributes = {{"kernel_shape", Ints{1, 1}}}, .inputs = {image}},
      col2im{.op = "Col2Im", .opset = 18, .inputs = {folded, two, two}, .constant = {1, 2}},
      deform{.op = "DeformConv", .opset = 19, .inputs = {image, filter, offset}},
      depth_to_space{.op = "DepthToSpace", .inputs = {image}}, lrn{.op = "LRN", .inputs = {image}},
      roi_align{.op = "RoiAlign", .opset = 16, .inputs = {image, Tensor(DType::f32, {1, 4}), Tensor(DType::i64, {1})}},
      rulebook{.op = "SparseRulebook",
               .domain = "lenslet",
               .opset = 1,
               .attributes = {{"spatial_shape", Ints{4, 4}}, {"kernel_shape", Ints{3, 3}}},
               .inputs = {Tensor(DType::i32, {5, 3})}};
  test::OpCase regular = rulebook;
  regular.attributes.emplace_back("kind", std::string("regular"));
  regular.outputs = 2;
  struct Row {
    const test::OpCase& c;
    const char* name;
    Ints others;  ///< the list's other entries; {none}: a number
    const char* says;
    std::int64_t least, most;
  };
  const Row rows[] = {
      {unpool, "kernel_shape", {1}, "attribute 'kernel_shape' holds {}", 1, large},
      {unpool, "strides", {1}, "attribute 'strides' holds {}", 1, large},
      {unpool, "pads", {0, 0, 0}, "attribute 'pads' holds {}", 0, large},
      {pool, "kernel_shape", {1}, "attribute 'kernel_shape' holds {}", 1, large},
      {pool, "strides", {1}, "attribute 'strides' holds {}", 1, large},
      {pool, "dilations", {1}, "attribute 'dilations' holds {}", 1, large},
      {pool, "pads", {0, 0, 0}, "attribute 'pads' holds {}", 0, large},
      {col2im, "strides", {1}, "attribute strides holds {}", 1, large},
      {col2im, "dilations", {1}, "attribute dilations holds {}", 1, large},
      {col2im, "pads", {0, 0, 0}, "attribute pads holds {}", 0, large},
      {deform, "strides", {1}, "attribute 'strides' holds {}", 1, large},
      {deform, "dilations", {1}, "attribute 'dilations' holds {}", 1, large},
      {deform, "pads", {0, 0, 0}, "attribute 'pads' holds {}", 0, large},
      {depth_to_space, "blocksize", {none}, "blocksize={} makes no sense", 1, 1 << 20},
      {lrn, "size", {none}, "attribute 'size' is {}", 1, 1 << 20},
      {roi_align, "output_height", {none}, "attribute 'output_height' is {}", 1, 1 << 20},
      {roi_align, "sampling_ratio", {none}, "attribute 'sampling_ratio' is {}", 0, 1024},
      {rulebook, "dilations", {1}, "attribute dilations has an entry {} outside", 1, 1 << 16},
      {rulebook, "spatial_shape", {4}, "attribute spatial_shape has an entry {} outside", 1, large},
      {rulebook, "kernel_shape", {3}, "attribute kernel_shape has an entry {} outside", 1, 5},
      {regular, "strides", {1}, "attribute strides has an entry {} outside", 1, 1 << 16},
      {regular, "pads", {0, 0, 0}, "attribute pads has an entry {}", 0, 1 << 16},
      {rulebook, "images", {none}, "attribute images is {}", 1, large},
      {rulebook, "max_pairs", {none}, "attribute max_pairs is {}", 0, std::numeric_limits<std::int32_t>::max()},
  };
  for (const Row& row : rows) {
    const auto refusal = [&](const AttributeValue& value) {
      test::OpCase c = row.c;
      std::erase_if(c.attributes, [&](const auto& one) { return one.first == row.name; });
      c.attributes.emplace_back(row.name, value);
      return test::refusal(c);
    };
    const auto refused = [&](std::int64_t value) {
      Ints list{value};
      list.insert(list.end(), row.others.begin(), row.others.end());
      const std::string text = row.others == Ints{none} ? refusal(value) : refusal(list);
      return text.find(fmt::format(fmt::runtime(row.says), value)) != std::string::npos;
    };
    CAPTURE(row.c.op);
    CAPTURE(std::string(row.name));
    CHECK(refused(row.least - 1));
    CHECK_FALSE(refused(row.least));
    CHECK_FALSE(refused(row.most));
    CHECK(refused(row.most + 1));
    if (row.others == Ints{none}) continue;
    // Lists of a wrong length.
    CHECK(refusal(Ints(row.others.size() + 1, row.least)) == "");
    CHECK(refusal(Ints(row.others.size(), row.least)) != "");
    CHECK(refusal(Ints(row.others.size() + 2, row.least)) != "");
  }
}
