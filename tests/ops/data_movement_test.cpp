// Operators that copy elements to other places.

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "ops/core/kernel.h"
#include "tests/expect_error.h"
#include "tests/ops/op_harness.h"
#include "tests/ops/op_runner.h"

namespace lenslet::test {

namespace {

using Ints = std::vector<std::int64_t>;

constexpr DType every_size[] = {DType::u8, DType::f16, DType::f32, DType::i64};
constexpr std::int64_t far = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t near = std::numeric_limits<std::int64_t>::min();

const OpCase transpose{.op = "Transpose"};
const OpCase concat{.op = "Concat"};

}  // namespace

TEST_CASE("transpose/every_permutation_of_4_axes") {
  Ints perm{0, 1, 2, 3};
  do {
    check_op({.op = "Transpose", .attributes = {{"perm", perm}}, .inputs = {random_f32({2, 17, 5, 19}, 1)}});
  } while (std::next_permutation(perm.begin(), perm.end()));
}

TEST_CASE("transpose/every_element_size") {
  for (const DType dtype : every_size) {
    check_op(with(transpose, {random_of(dtype, {3, 7, 13, 33}, 2, 0, 100)}, {{"perm", Ints{0, 2, 3, 1}}}));
    check_op(with(transpose, {random_of(dtype, {5, 1, 3, 2, 4}, 2, 0, 100)}));
  }
}

TEST_CASE("transpose/whole_vectors_and_partial_tiles_on_every_instruction_set") {
  for (const DType dtype : every_size) {
    for (const Shape& shape : {Shape{144, 80}, Shape{16, 272}, Shape{145, 80}, Shape{20, 131}})
      check_op_on_every_instruction_set(with(transpose, {random_of(dtype, shape, 2, 0, 100)}));
    for (const Ints& perm : {Ints{0, 3, 2, 1}, Ints{3, 1, 0, 2}, Ints{2, 1, 3, 0}})
      check_op_on_every_instruction_set(
          with(transpose, {random_of(dtype, {48, 3, 32, 80}, 2, 0, 100)}, {{"perm", perm}}));
    // Pairs: two lines to one, and one to two.
    for (const Shape& shape : {Shape{2, 200}, Shape{200, 2}, Shape{3, 2, 37}, Shape{2, 70000}})
      check_op_on_every_instruction_set(with(transpose, {random_of(dtype, shape, 2, 0, 100)},
                                             {{"perm", shape.rank() == 2 ? Ints{1, 0} : Ints{0, 2, 1}}}));
  }
}

TEST_CASE("transpose/other_ranks") {
  check_op(with(transpose, {random_f32({}, 3)}));
  check_op(with(transpose, {random_f32({7}, 3)}));
  check_op(with(transpose, {random_f32({100, 37}, 3)}));
  check_op(with(transpose, {random_f32({300, 500}, 3)}));
  check_op(with(transpose, {random_f32({3, 0, 2}, 3)}));
  check_op(with(transpose, {random_f32({2, 3, 1, 2, 3, 2, 1, 2}, 3)}, {{"perm", Ints{6, 4, 2, 0, 1, 3, 5, 7}}}));
  // The channel shuffle of ShuffleNet.
  check_op(with(transpose, {random_f32({2, 2, 29, 7, 7}, 3)}, {{"perm", Ints{0, 2, 1, 3, 4}}}));
}

TEST_CASE("transpose/gives_its_input_back_when_only_ones_move") {
  const auto same = [](const Ints& perm, const Shape& shape) {
    const InputInfo x{true, {DType::f32, shape}, nullptr};
    AttributeList attributes;
    if (!perm.empty()) attributes.emplace_back("perm", perm);
    return lenslet::make_op("Transpose", "", attributes, 1)->gives_input_back({&x, 1});
  };
  CHECK(same({0, 1, 2}, {2, 3, 4}));
  CHECK(same({1, 0, 2}, {1, 1, 4}));
  CHECK(same({0, 2, 1}, {0, 3, 3}) == false);
  CHECK_FALSE(same({1, 0}, {2, 2}));
  CHECK_FALSE(same({1, 0}, {1, 2}));  // the order stays, the shape does not
  CHECK(same({}, {7}));
  CHECK_FALSE(same({}, {2, 2}));
}

TEST_CASE("transpose/what_is_no_permutation_is_refused") {
  const Tensor x = random_f32({2, 3}, 1);
  CHECK(infer_error(with(transpose, {x}, {{"perm", Ints{0, 1, 2}}})) == ErrorKind::invalid_model);
  for (const Ints& perm : {Ints{0, 0}, Ints{0, 2}, Ints{-1, 0}})
    CHECK_ERROR(make_op(with(transpose, {x}, {{"perm", perm}})), invalid_model, "is not a permutation");
}

TEST_CASE("concat/each_axis_in_both_layouts") {
  for (std::int64_t axis = -4; axis < 4; ++axis) {
    std::vector<Tensor> inputs;
    for (const std::int64_t dim : {1, 7, 16}) {
      Shape shape{2, 3, 5, 6};
      shape = shape.with(static_cast<int>(axis < 0 ? axis + 4 : axis), dim);
      inputs.push_back(random_f32(shape, static_cast<unsigned>(dim)));
    }
    check_op({.op = "Concat", .attributes = {{"axis", axis}}, .inputs = inputs, .maybe_constant = {1}});
  }
}

TEST_CASE("concat/other_types_and_ranks") {
  for (const DType dtype : every_size)
    check_op(
        with(concat,
             {random_of(dtype, {3, 5}, 1, 0, 9), random_of(dtype, {3, 0}, 2, 0, 9), random_of(dtype, {3, 2}, 3, 0, 9)},
             {{"axis", 1}}));
  check_op(with(concat, {int64s({1, 2}), int64s({-1})}, {{"axis", 0}}));
  check_op(with(concat, {random_f32({1, 64, 55, 55}, 1), random_f32({1, 64, 55, 55}, 2)}, {{"axis", 1}}));
}

// Runs of 2, 4 and 8 bytes, aligned and not.
TEST_CASE("concat/short_runs") {
  for (const DType dtype : every_size)
    for (const std::int64_t run : {2, 4, 8})
      for (const std::int64_t other : {1, 2, 3, 4})
        check_op({.op = "Concat",
                  .attributes = {{"axis", 2}},
                  .inputs = {random_of(dtype, {3, 5, run}, 1, 0, 9), random_of(dtype, {3, 5, other}, 2, 0, 9),
                             random_of(dtype, {3, 5, run}, 3, 0, 9)}});
}

TEST_CASE("concat/many_inputs") {
  for (const std::int64_t axis : {1, 3}) {
    std::vector<Tensor> inputs;
    for (unsigned i = 0; i < 19; ++i) inputs.push_back(random_f32({3, 8, 4, 8}, i));
    check_op({.op = "Concat", .attributes = {{"axis", axis}}, .inputs = inputs});
  }
}

TEST_CASE("concat/meaning") {
  const InputInfo x{true, {DType::f32, {2, 3, 4, 5}}, nullptr}, other{true, {DType::f32, {2, 3, 4, 9}}, nullptr};
  const InputInfo inputs[] = {x, other};
  const auto op = make_op({.op = "Concat", .attributes = {{"axis", -1}}, .inputs = {int64s({1})}});
  CHECK(op->gives_input_back({&x, 1}));
  CHECK_FALSE(op->gives_input_back(inputs));
  const auto moved = op->permuted(std::vector<int>{0, 2, 3, 1}, inputs);
  REQUIRE(moved.has_value());
  CHECK(to_string(moved->op->attributes()) == "axis=1");
  REQUIRE(moved->inputs.size() == 2);
  for (const std::size_t i : {0U, 1U}) CHECK((moved->inputs[i].number == i && moved->inputs[i].permuted));
  CHECK_FALSE(moved->same_result);
}

TEST_CASE("concat/other_sizes_ranks_and_types_are_refused") {
  const AttributeList axis{{"axis", 1}};
  CHECK(infer_error(with(concat, {random_f32({2, 3}, 1), random_f32({3, 3}, 1)}, axis)) == ErrorKind::invalid_model);
  CHECK(infer_error(with(concat, {random_f32({2, 3}, 1), random_f32({2, 3, 1}, 1)}, axis)) == ErrorKind::invalid_model);
  CHECK(infer_error(with(concat, {random_f32({2, 3}, 1), random_of(DType::i64, {2, 3}, 1, 0, 9)}, axis)) ==
        ErrorKind::invalid_model);
  CHECK(infer_error(with(concat, {random_f32({2}, 1)}, axis)) == ErrorKind::invalid_model);
  CHECK_ERROR(make_op(with(concat, {random_f32({2}, 1)})), invalid_model, "attribute 'axis' is missing");
}

TEST_CASE("split/forms") {
  const OpCase split{.op = "Split", .opset = 13, .outputs = 2, .constant = {1}};
  const Tensor x = random_f32({2, 12, 5, 3}, 1);
  for (const std::int64_t axis : {1, -3})
    check_op({.op = "Split",
              .opset = 11,
              .attributes = {{"axis", axis}, {"split", Ints{3, 0, 9}}},
              .inputs = {x},
              .outputs = 3});
  check_op({.op = "Split", .opset = 2, .attributes = {{"axis", 1}}, .inputs = {x}, .outputs = 4});
  check_op(with(split, {x, int64s({1, 1})}));
  check_op(with(split, {x, int64s({4, 1})}, {{"axis", 2}}));
  for (const std::int64_t parts : {1, 3, 5})
    check_op({.op = "Split",
              .opset = 18,
              .attributes = {{"axis", 1}, {"num_outputs", parts}},
              .inputs = {x},
              .outputs = static_cast<std::size_t>(parts)});
  for (const DType dtype : every_size)
    check_op({.op = "Split", .inputs = {random_of(dtype, {9}, 1, 0, 9)}, .outputs = 3});
  // More outputs than a tensor has axes.
  check_op({.op = "Split", .inputs = {random_f32({20, 3}, 1)}, .outputs = 20});
}

TEST_CASE("split/parts_that_do_not_add_up_are_refused") {
  const OpCase split{.op = "Split", .opset = 11, .outputs = 2};
  const Tensor x = random_f32({7}, 1);
  CHECK(infer_error({.op = "Split", .inputs = {x}, .outputs = 2}) == ErrorKind::invalid_model);
  CHECK(infer_error(with(split, {x}, {{"split", Ints{3, 3}}})) == ErrorKind::invalid_model);
  CHECK(infer_error(with(split, {x}, {{"split", Ints{8, -1}}})) == ErrorKind::invalid_model);
  CHECK(infer_error(with(split, {x}, {{"split", Ints{7}}})) == ErrorKind::invalid_model);
  CHECK(infer_error({.op = "Split", .inputs = {x, int64s({far, far})}, .outputs = 2, .constant = {1}}) ==
        ErrorKind::limit);
  // ceil(7/5) = 2 leaves a negative size for the fifth part.
  CHECK(infer_error({.op = "Split", .opset = 18, .attributes = {{"num_outputs", 5}}, .inputs = {x}, .outputs = 5}) ==
        ErrorKind::invalid_model);
  CHECK_ERROR(make_op({.op = "Split", .opset = 18, .attributes = {{"num_outputs", 3}}, .inputs = {x}, .outputs = 2}),
              unsupported, "num_outputs=3 for a node with 2 outputs");
}

TEST_CASE("slice/attribute_form") {
  const Tensor x = random_f32({3, 10, 5, 4}, 1);
  check_op(
      {.op = "Slice", .opset = 7, .attributes = {{"starts", Ints{1, -4}}, {"ends", Ints{1000, -1}}}, .inputs = {x}});
  check_op({.op = "Slice",
            .opset = 9,
            .attributes = {{"starts", Ints{1}}, {"ends", Ints{far}}, {"axes", Ints{-3}}},
            .inputs = {x}});
}

TEST_CASE("slice/attributes_with_steps") {
  const AttributeList attributes{
      {"starts", Ints{9, 0}}, {"ends", Ints{0, 4}}, {"axes", Ints{1, 0}}, {"steps", Ints{-2, 1}}};
  const auto op = make_normalised_op("Slice", attributes, 1);
  CHECK(to_string(op->attributes()) == to_string(attributes));
  const InputInfo x{true, {DType::f32, {3, 10, 5}}, nullptr};
  CHECK(op->infer({&x, 1}).at(0).shape == Shape{3, 5, 5});
  // Files of these versions cannot express them.
  CHECK_ERROR(lenslet::make_op("Slice", "", attributes, 1, 1, 9), unsupported, "attribute 'steps' is not supported");
  CHECK_ERROR(lenslet::make_op("Slice", "", attributes, 1, 1, 10), invalid_model, "input starts or ends is missing");
}

TEST_CASE("slice/ranges") {
  const Tensor x = random_f32({2, 10, 5, 4}, 1);
  const std::int64_t positions[] = {near, -11, -10, -3, -1, 0, 1, 4, 9, 10, far};
  for (const std::int64_t step : {near, std::int64_t{-3}, std::int64_t{-1}, std::int64_t{1}, std::int64_t{4}, far})
    for (const std::int64_t start : positions)
      for (const std::int64_t end : positions)
        check_op({.op = "Slice",
                  .inputs = {random_f32({10}, 1), int64s({start}), int64s({end}), int64s({0}), int64s({step})},
                  .constant = {1, 2, 3, 4}});
}

TEST_CASE("slice/short_runs") {
  for (const DType dtype : every_size)
    for (const std::int64_t columns : {7, 8})
      for (const std::int64_t start : {0, 1, 2, 4})
        for (const std::int64_t step : {1, -1})
          check_op({.op = "Slice",
                    .inputs = {random_of(dtype, {9, 6, columns}, 2, 0, 9), int64s({step < 0 ? 8 : 0, start}),
                               int64s({step < 0 ? near : far, start + 2}), int64s({0, 2}), int64s({step, 1})},
                    .constant = {1, 2, 3, 4}});
}

TEST_CASE("slice/several_axes_in_both_layouts") {
  const OpCase slice{.op = "Slice", .constant = {1, 2, 3, 4}};
  const Tensor x = random_f32({3, 10, 7, 6}, 1);
  check_op(with(slice, {x, int64s({8, 1, -1}), int64s({0, 7, near}), int64s({1, 2, -1}), int64s({-2, 3, -1})}));
  check_op({.op = "Slice", .inputs = {x, int64s({1, 2}), int64s({3, 9})}, .constant = {1, 2}});
  check_op({.op = "Slice", .inputs = {x, int64s({1}), int64s({3}), Tensor(), int64s({2})}, .constant = {1, 2, 4}});
  for (const DType dtype : every_size)
    check_op(with(slice, {random_of(dtype, {4, 9}, 2, 0, 9), int64s({-1}), int64s({0}), int64s({1}), int64s({-2})}));
  const Tensor starts = Tensor::of<std::int32_t>(Shape{1}, {1}), ends = Tensor::of<std::int32_t>(Shape{1}, {2});
  check_op({.op = "Slice", .inputs = {x, starts, ends}, .constant = {1, 2}});
}

TEST_CASE("slice/steps_of_0_axes_named_twice_and_computed_ranges_are_refused") {
  const Tensor x = random_f32({3, 4}, 1);
  const std::vector<int> all{1, 2, 3, 4};
  CHECK(infer_error(
            {.op = "Slice", .inputs = {x, int64s({0}), int64s({1}), int64s({0}), int64s({0})}, .constant = all}) ==
        ErrorKind::invalid_model);
  CHECK(infer_error({.op = "Slice", .inputs = {x, int64s({0}), int64s({1, 2})}, .constant = all}) ==
        ErrorKind::invalid_model);
  CHECK(infer_error({.op = "Slice", .inputs = {x, int64s({0, 0}), int64s({1, 2}), int64s({0, -2})}, .constant = all}) ==
        ErrorKind::invalid_model);
  CHECK(infer_error({.op = "Slice", .inputs = {x, int64s({0, 0, 0}), int64s({1, 2, 3})}, .constant = all}) ==
        ErrorKind::invalid_model);
  CHECK(infer_error({.op = "Slice", .inputs = {x, int64s({0}), int64s({1}), int64s({2})}, .constant = all}) ==
        ErrorKind::invalid_model);
  CHECK(infer_error({.op = "Slice", .inputs = {x, int64s({0}), int64s({1})}}) == ErrorKind::unsupported);
}

TEST_CASE("gather/axes_and_indices") {
  const OpCase gather{.op = "Gather", .maybe_constant = {1}};
  const Tensor x = random_f32({3, 5, 4, 6}, 1);
  for (std::int64_t axis = -4; axis < 4; ++axis) {
    check_op(with(gather, {x, int64s({2, 0, -3, 2})}, {{"axis", axis}}));
    check_op(with(gather, {x, int64_scalar(-1)}, {{"axis", axis}}));
  }
  check_op(with(gather, {x, Tensor::of<std::int32_t>(Shape{2, 2}, {0, 1, -1, -2})}));
  check_op({.op = "Gather", .inputs = {int64s({4, 5, 6}), int64_scalar(1)}, .constant = {0, 1}});
  for (const DType dtype : every_size) check_op(with(gather, {random_of(dtype, {4, 3}, 2, 0, 9), int64s({3, 3, 0})}));
}

// Neighbouring slices are copied at once; pieces of the parallel loop end within slices of 160 KB.
TEST_CASE("gather/slices_by_a_table") {
  const auto gather = [](const Tensor& x, std::vector<std::int32_t> rows) {
    const Tensor table = Tensor::of<std::int32_t>({std::ssize(rows)}, std::span<const std::int32_t>(rows));
    check_op({.op = "Gather", .attributes = {{"axis", std::int64_t{1}}}, .inputs = {x, table}, .maybe_constant = {1}});
  };
  for (const DType dtype : every_size)
    for (const std::int64_t row : {2, 3, 8, 40})
      gather(random_of(dtype, {3, 9, row}, 2, 0, 9), {3, 4, 5, 0, -1, 8, 7, 0, 1});
  gather(random_f32({2, 3, 40'001}, 3), {1, 2, 0});
  gather(random_f32({2, 3, 0}, 3), {1, 2, 0});
}

TEST_CASE("gather/indices_outside_are_told_in_the_run") {
  const Tensor x = random_f32({3, 5}, 1);
  CHECK_ERROR(run_op({.op = "Gather", .inputs = {x, int64s({3})}}), invalid_argument, "is outside axis");
  CHECK_ERROR(run_op({.op = "Gather", .inputs = {x, int64s({0, -4})}}), invalid_argument, "is outside axis");
  CHECK_ERROR(run_op({.op = "Gather", .inputs = {x, int64s({near})}}), invalid_argument, "is outside axis");
  CHECK(infer_error({.op = "Gather", .inputs = {x, random_f32({1}, 1)}}) == ErrorKind::unsupported);
  CHECK(infer_error({.op = "Gather", .inputs = {random_f32({}, 1), int64s({0})}}) == ErrorKind::invalid_model);
}

TEST_CASE("gather/refused_on_cuda") {
  const Tensor inside = int64s({2, -3}), outside = int64s({0, 3});
  const auto refusal = [](const Tensor& indices, bool constant) {
    const std::vector<InputInfo> infos{{true, {DType::f32, {3, 5}}, nullptr},
                                       {true, {indices.dtype(), indices.shape()}, constant ? &indices : nullptr}};
    const Problem problem(make_op({.op = "Gather", .inputs = {random_f32({3, 5}, 1), indices}}), infos);
    return kernels_of("Gather", DeviceKind::cuda).front()->offer(problem, {.device = reference_gpu()}).refusal;
  };
  CHECK(refusal(inside, true).empty());
  CHECK(refusal(inside, false).empty());
  CHECK(refusal(outside, true) == "index 3 is outside axis 0 of [3,5]");
}

TEST_CASE("gather/known_indices_are_checked_before_the_run") {
  const Tensor x = random_f32({3, 5}, 1), outside = int64s({0, 3});
  const std::vector<InputInfo> infos{{true, {DType::f32, {3, 5}}, nullptr}, {true, {DType::i64, {2}}, &outside}};
  const Problem problem(make_op({.op = "Gather", .inputs = {x, outside}}), infos);
  const DeviceProfile device = cpu_profile(1);
  CHECK_ERROR(kernels_of("Gather", DeviceKind::cpu).front()->offer(problem, {.device = device}), invalid_argument,
              "index 3 is outside axis 0 of [3,5]");
}

TEST_CASE("expand") {
  const OpCase expand{.op = "Expand", .constant = {1}};
  for (const DType dtype : every_size) {
    check_op(with(expand, {random_of(dtype, {3, 1}, 1, 0, 9), int64s({2, 1, 6})}));
    check_op(with(expand, {random_of(dtype, {3, 4}, 1, 0, 9), int64s({1})}));
    check_op(with(expand, {random_of(dtype, {}, 1, 0, 9), int64s({3, 4})}));
  }
  check_op(with(expand, {random_f32({1, 16, 1, 1}, 1), int64s({2, 16, 5, 7})}));
  CHECK(infer_error(with(expand, {random_f32({3}, 1), int64s({2})})) == ErrorKind::invalid_model);
  CHECK(infer_error(with(expand, {random_f32({1}, 1), int64s({-1})})) == ErrorKind::invalid_model);
}

TEST_CASE("tile") {
  const OpCase tile{.op = "Tile", .constant = {1}};
  for (const DType dtype : every_size) check_op(with(tile, {random_of(dtype, {2, 3}, 1, 0, 9), int64s({3, 2})}));
  check_op(with(tile, {random_f32({2, 1, 3, 4}, 1), int64s({1, 5, 2, 3})}));
  check_op(with(tile, {random_f32({2, 1, 3}, 1), int64s({1, 0, 2})}));
  check_op(with(tile, {random_f32({2, 3, 2, 2, 2, 2, 2, 2}, 1), int64s({1, 2, 2, 1, 2, 2, 1, 2})}));
  CHECK(infer_error(with(tile, {random_f32({2}, 1), int64s({1, 2})})) == ErrorKind::invalid_model);
  CHECK(infer_error(with(tile, {random_f32({2}, 1), int64s({-1})})) == ErrorKind::invalid_model);
  CHECK(infer_error(with(tile, {random_f32({4}, 1), int64s({far})})) == ErrorKind::limit);
}

TEST_CASE("depth_to_space/both_modes_and_back") {
  const OpCase space_to_depth_13{.op = "SpaceToDepth"};
  const OpCase space_to_depth{.op = "SpaceToDepth", .opset = 28};
  const OpCase depth_to_space{.op = "DepthToSpace"};
  for (const std::int64_t block : {1, 2, 3})
    for (const char* mode : {"DCR", "CRD"})
      check_op(
          with(depth_to_space, {random_f32({2, 5 * block * block, 3, 7}, 1)}, {{"blocksize", block}, {"mode", mode}}));
  for (const std::int64_t block : {1, 2, 3})
    for (const char* mode : {"DCR", "CRD"})
      check_op(
          with(space_to_depth, {random_f32({2, 5, 3 * block, 7 * block}, 1)}, {{"blocksize", block}, {"mode", mode}}));
  for (const DType dtype : every_size) {
    check_op(with(depth_to_space, {random_of(dtype, {1, 8, 2, 3}, 1, 0, 9)}, {{"blocksize", 2}}));
    check_op(with(space_to_depth_13, {random_of(dtype, {1, 3, 2, 6}, 1, 0, 9)}, {{"blocksize", 2}}));
  }
  // Rows of whole vectors, which the device interleaves; the last one has many inputs.
  for (const DType dtype : every_size)
    for (const std::int64_t block : {2, 4}) {
      for (const char* mode : {"DCR", "CRD"})
        check_op(with(depth_to_space, {random_of(dtype, {2, 3 * block * block, 5, 48}, 1, 0, 9)},
                      {{"blocksize", block}, {"mode", mode}}));
      for (const char* mode : {"DCR", "CRD"})
        check_op(with(space_to_depth, {random_of(dtype, {2, 3, 5 * block, 48 * block}, 1, 0, 9)},
                      {{"blocksize", block}, {"mode", mode}}));
    }
  check_op(with(depth_to_space, {random_f32({1, 8, 384, 384}, 1)}, {{"blocksize", 2}}));
  CHECK(infer_error(with(depth_to_space, {random_f32({1, 6, 2, 2}, 1)}, {{"blocksize", 2}})) ==
        ErrorKind::invalid_model);
  CHECK(infer_error(with(space_to_depth_13, {random_f32({1, 6, 3, 2}, 1)}, {{"blocksize", 2}})) ==
        ErrorKind::invalid_model);
  CHECK_ERROR(make_op({.op = "SpaceToDepth",
                       .opset = 13,
                       .attributes = {{"blocksize", 2}, {"mode", "CRD"}},
                       .inputs = {random_f32({1, 4, 2, 2}, 1)}}),
              unsupported, "attribute 'mode' is not supported");
  for (const std::int64_t block : {std::int64_t{0}, std::int64_t{-1}, far})
    CHECK_ERROR(make_op(with(depth_to_space, {random_f32({1, 4, 2, 2}, 1)}, {{"blocksize", block}})), invalid_model,
                "blocksize=" + std::to_string(block) + " makes no sense");
  CHECK_ERROR(make_op(with(depth_to_space, {random_f32({1, 4, 2, 2}, 1)}, {{"blocksize", 2}, {"mode", "XYZ"}})),
              invalid_model, "mode=XYZ is neither DCR nor CRD");
}

TEST_CASE("channel_shuffle/groups_in_turn") {
  const OpCase channel_shuffle{.op = "ChannelShuffle", .domain = "lenslet", .opset = 1};
  for (const DType dtype : every_size)
    for (const std::int64_t groups : {2, 3, 4})
      check_op(with(channel_shuffle, {random_of(dtype, {2, 24, 5, 3}, 1, 0, 9)}, {{"groups", groups}}));
  // As in ShuffleNet V2: two groups of 58 channels, which are not whole vectors.
  for (const std::int64_t channels : {116, 232})
    check_op(with(channel_shuffle, {random_f32({1, channels, 14, 14}, 1)}, {{"groups", 2}}));
  const auto refused = [](std::int64_t groups, std::vector<Tensor> inputs, std::size_t outputs) {
    return infer_error({.op = "ChannelShuffle",
                        .domain = "lenslet",
                        .opset = 1,
                        .attributes = {{"groups", groups}, {"num_outputs", static_cast<std::int64_t>(outputs)}},
                        .inputs = std::move(inputs),
                        .outputs = outputs}) == ErrorKind::invalid_model;
  };
  const Tensor x = random_f32({1, 24, 2, 2}, 1);
  CHECK(refused(5, {x}, 1));
  CHECK(refused(2, {x, x, x}, 1));
  CHECK(refused(2, {x, random_f32({1, 12, 2, 2}, 2)}, 1));
  CHECK(refused(2, {x}, 5));
}

TEST_CASE("channel_shuffle/groups_apart_and_parts") {
  // 29 and 12 elements a part: with and without whole vectors, and the last starting within one.
  for (const DType dtype : every_size)
    for (const std::int64_t channels : {12, 58, 116})
      for (const std::int64_t parts : {1, 2})
        check_op(
            {.op = "ChannelShuffle",
             .domain = "lenslet",
             .opset = 1,
             .attributes = {{"groups", 2}, {"num_outputs", parts}},
             .inputs = {random_of(dtype, {2, channels, 5, 3}, 1, 0, 9), random_of(dtype, {2, channels, 5, 3}, 2, 0, 9)},
             .outputs = static_cast<std::size_t>(parts)});
  const auto three = [](std::uint32_t seed) { return random_f32({1, 4, 3, 7}, seed); };
  check_op({.op = "ChannelShuffle",
            .domain = "lenslet",
            .opset = 1,
            .attributes = {{"groups", 3}, {"num_outputs", 2}},
            .inputs = {three(1), three(2), three(3)},
            .outputs = 2});
  check_op({.op = "ChannelShuffle",
            .domain = "lenslet",
            .opset = 1,
            .attributes = {{"groups", 2}, {"num_outputs", 3}},
            .inputs = {random_f32({2, 24, 5, 3}, 1)},
            .outputs = 3});
}

}  // namespace lenslet::test
