#pragma once
// Runner::load_image and run_loaded against to_input() and run, on any device.

#include <string>

namespace lenslet::test {

/// To the bit: batches, inputs in both orders of dimensions, photos of all sorts, what an observer sees.
void check_loaded_photos(const std::string& device);
/// Likewise inputs of f16, bf16 and f64.
void check_loaded_types(const std::string& device);
/// Batches that are filled in part, twice, or with an image that is refused.
void check_partly_loaded_batches(const std::string& device);
/// Error(invalid_argument), after which the Runner goes on.
void check_refused_loads(const std::string& device);

}  // namespace lenslet::test
