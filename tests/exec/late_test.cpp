#include <doctest/doctest.h>

#include "late_cases.h"
#include "lenslet/runner.h"
#include "runtime/exec/model_impl.h"
#include "small_net.h"

namespace lenslet::test {

TEST_CASE("exec/late/boxes_selected_in_the_run") { check_boxes_selected_in_the_run("cpu"); }
TEST_CASE("exec/late/as_many_images_as_selected") { check_as_many_images_as_selected("cpu"); }
TEST_CASE("exec/late/reshape_to_what_is_computed") { check_reshape_to_what_is_computed("cpu"); }
TEST_CASE("exec/late/shapes_decided_one_after_another") { check_shapes_decided_one_after_another("cpu"); }
TEST_CASE("exec/late/branch_taken_in_the_run") { check_branch_taken_in_the_run("cpu"); }
TEST_CASE("exec/late/memory_of_the_apps") { check_late_on_memory_of_the_apps("cpu"); }
TEST_CASE("exec/late/wrong_indices_are_reported") { check_wrong_indices_are_reported("cpu"); }
TEST_CASE("exec/late/other_shapes_are_planned_anew") { check_other_shapes_are_planned_anew("cpu"); }

}  // namespace lenslet::test
