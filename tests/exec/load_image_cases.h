#pragma once
// Compares Runner::load_image and run_loaded with to_input() and run, on any device.

#include <string>

namespace lenslet::test {

/// Bit by bit: batches, both orders of dimensions, photos of all kinds, observed values.
void check_loaded_photos(const std::string& device);
/// The same for inputs of f16, bf16 and f64.
void check_loaded_types(const std::string& device);
/// Batches that are filled partly, twice, or with an image that is refused.
void check_partly_loaded_batches(const std::string& device);
/// Error(invalid_argument), after which the Runner continues.
void check_refused_loads(const std::string& device);

}  // namespace lenslet::test
