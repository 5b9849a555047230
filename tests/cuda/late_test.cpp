// Networks with late shapes on a CUDA device.

#include <doctest/doctest.h>

#include "tests/cuda/device_case.h"
#include "tests/exec/late_cases.h"

namespace lenslet::test {

DEVICE_CASE("cuda/late/boxes_selected_in_the_run") { check_boxes_selected_in_the_run("cuda"); }
DEVICE_CASE("cuda/late/as_many_images_as_selected") { check_as_many_images_as_selected("cuda"); }
DEVICE_CASE("cuda/late/reshape_to_what_is_computed") { check_reshape_to_what_is_computed("cuda"); }
DEVICE_CASE("cuda/late/shapes_decided_one_after_another") { check_shapes_decided_one_after_another("cuda"); }
DEVICE_CASE("cuda/late/branch_taken_in_the_run") { check_branch_taken_in_the_run("cuda"); }
DEVICE_CASE("cuda/late/memory_of_the_apps") { check_late_on_memory_of_the_apps("cuda"); }
DEVICE_CASE("cuda/late/wrong_indices_are_reported") { check_wrong_indices_are_reported("cuda"); }
DEVICE_CASE("cuda/late/other_shapes_are_planned_anew") { check_other_shapes_are_planned_anew("cuda"); }

}  // namespace lenslet::test
