// Networks that are planned in part while they run, on a CUDA device.

#include <doctest/doctest.h>

#include "tests/cuda/skip.h"
#include "tests/exec/late_cases.h"

namespace lenslet::test {

TEST_CASE("cuda/late/boxes_selected_in_the_run") {
  if (have_device("cuda/late/boxes_selected_in_the_run")) check_boxes_selected_in_the_run("cuda");
}
TEST_CASE("cuda/late/as_many_images_as_selected") {
  if (have_device("cuda/late/as_many_images_as_selected")) check_as_many_images_as_selected("cuda");
}
TEST_CASE("cuda/late/reshape_to_what_is_computed") {
  if (have_device("cuda/late/reshape_to_what_is_computed")) check_reshape_to_what_is_computed("cuda");
}
TEST_CASE("cuda/late/shapes_decided_one_after_another") {
  if (have_device("cuda/late/shapes_decided_one_after_another")) check_shapes_decided_one_after_another("cuda");
}
TEST_CASE("cuda/late/branch_taken_in_the_run") {
  if (have_device("cuda/late/branch_taken_in_the_run")) check_branch_taken_in_the_run("cuda");
}
TEST_CASE("cuda/late/memory_of_the_apps") {
  if (have_device("cuda/late/memory_of_the_apps")) check_late_on_memory_of_the_apps("cuda");
}
TEST_CASE("cuda/late/wrong_indices_are_reported") {
  if (have_device("cuda/late/wrong_indices_are_reported")) check_wrong_indices_are_reported("cuda");
}
TEST_CASE("cuda/late/other_shapes_are_planned_anew") {
  if (have_device("cuda/late/other_shapes_are_planned_anew")) check_other_shapes_are_planned_anew("cuda");
}

}  // namespace lenslet::test
