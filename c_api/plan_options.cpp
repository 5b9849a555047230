#include "c_api/plan_options.h"

#include <fmt/format.h>

#include "c_api/structs.h"
#include "c_api/tensors.h"
#include "lenslet/c_api.h"

namespace lenslet::c_api {

namespace {

constexpr std::uint64_t known_flags = LENSLET_PLAN_ALGORITHM_WHERE_ACCEPTED | LENSLET_PLAN_KEEP_ALL_VALUES |
                                      LENSLET_PLAN_SYNC_EACH_STEP | LENSLET_PLAN_FLUSH_DENORMALS;
constexpr auto shapes_name = "shapes", layers_name = "layer algorithms", calibration_name = "calibration",
               values_name = "input values";

void check_zero(std::int32_t reserved, const char* name) {
  if (reserved != 0) throw Error(ErrorKind::unsupported, fmt::format("{}: a reserved member is {}", name, reserved));
}

}  // namespace

PlanOptions plan_options(const lenslet_plan_options& given) {
  check_zero(given.reserved, "plan options");
  if ((given.flags & ~known_flags) != 0)
    throw Error(ErrorKind::unsupported,
                fmt::format("plan options: flags {:#x} are not known", given.flags & ~known_flags));
  PlanOptions options;
  if (given.device != nullptr) options.device = given.device;
  if (given.precision != nullptr) options.numerics = parse_numerics(given.precision);
  if (given.conv_algorithm != nullptr) options.conv_algorithm = given.conv_algorithm;
  if (given.batch != 0) options.batch = given.batch;
  options.threads = given.threads;
  options.conv_algorithm_where_accepted = (given.flags & LENSLET_PLAN_ALGORITHM_WHERE_ACCEPTED) != 0;
  options.keep_all_values = (given.flags & LENSLET_PLAN_KEEP_ALL_VALUES) != 0;
  options.sync_each_step = (given.flags & LENSLET_PLAN_SYNC_EACH_STEP) != 0;
  options.flush_denormals = (given.flags & LENSLET_PLAN_FLUSH_DENORMALS) != 0;
  options.other_shapes = given.other_shapes;
  if (given.shape_count > 0) check_given(given.shapes, shapes_name);
  for (std::size_t i = 0; i < given.shape_count; ++i) {
    const lenslet_named_shape shape = taken_from(given.shapes, i, shapes_name);
    check_given(shape.name, "the name of a shape");
    check_zero(shape.reserved, shapes_name);
    options.input_shapes.emplace_back(shape.name, shape_of(shape.dims, shape.rank, shape.name));
  }
  if (given.layer_algorithm_count > 0) check_given(given.layer_algorithms, layers_name);
  for (std::size_t i = 0; i < given.layer_algorithm_count; ++i) {
    const lenslet_layer_algorithm layer = taken_from(given.layer_algorithms, i, layers_name);
    check_given(layer.layer, "the name of a layer");
    options.layer_algorithms.emplace_back(layer.layer, layer.algorithm == nullptr ? "" : layer.algorithm);
  }
  take_names(given.disabled_passes, given.disabled_pass_count, "disabled passes", options.disabled_passes);
  if (given.calibration_count > 0) check_given(given.calibration, calibration_name);
  for (std::size_t i = 0; i < given.calibration_count; ++i)
    options.calibration.push_back(host_copy(taken_from(given.calibration, i, calibration_name), calibration_name));
  if (given.input_value_count > 0) check_given(given.input_values, values_name);
  for (std::size_t i = 0; i < given.input_value_count; ++i) {
    const lenslet_named_tensor value = taken_from(given.input_values, i, values_name);
    check_given(value.name, "the name of an input value");
    check_given(value.tensor, value.name);
    options.input_values.emplace_back(value.name, host_copy(taken(value.tensor, value.name), value.name));
  }
  return options;
}

PlanOptions plan_options_of(const lenslet_plan_options* options) {
  const lenslet_plan_options given = taken(options, "plan options");
  if (given.executor != nullptr || given.allocator != nullptr)
    throw Error(ErrorKind::unsupported, "plan options: only lenslet_runner_create() takes an executor or an allocator");
  return plan_options(given);
}

}  // namespace lenslet::c_api
