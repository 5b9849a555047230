#pragma once

#include <optional>
#include <string>

#include "tools/measuring/kernel_timer.h"

namespace lenslet::tool {

/// The time in us (p10: other work only adds) of a convolution that is repeated on the same memory: from the caches,
/// where they hold it.
/// `problem` is ConvProblem::str(), `algorithm` and `config` are those of its step. Nothing for what is not float32, or
/// that the algorithm refuses alone.
std::optional<double> conv_us_in_caches(KernelTimer& timer, const std::string& problem, const std::string& algorithm,
                                        const std::string& config, double seconds);

}  // namespace lenslet::tool
