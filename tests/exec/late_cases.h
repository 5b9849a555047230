#pragma once
// Networks whose shapes partly depend on computed values, on any device.

#include <string>

#include "runtime/graph/graph.h"

namespace lenslet::test {

void check_boxes_selected_in_the_run(const std::string& device);
/// The positive elements of x, and twice those: x [8] -> y [n], 2 y; also Relu(x).
Graph positive_net();
void check_as_many_images_as_selected(const std::string& device);
void check_reshape_to_what_is_computed(const std::string& device);
void check_shapes_decided_one_after_another(const std::string& device);
void check_branch_taken_in_the_run(const std::string& device);
/// RunOptions::outputs and stop, and inputs used in place.
void check_late_on_memory_of_the_apps(const std::string& device);
void check_wrong_indices_are_reported(const std::string& device);
/// PlanOptions::other_shapes.
void check_other_shapes_are_planned_anew(const std::string& device);

}  // namespace lenslet::test
