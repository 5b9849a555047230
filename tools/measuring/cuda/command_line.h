#pragma once
// Command line helpers shared by the benches of this folder.

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/cuda/session.h"
#include "lenslet/numerics.h"

namespace lenslet::bench {

/// main(): runs bench(arguments); prints errors to stderr after the program's name.
template <typename F>
int run(std::string_view name, int argc, char** argv, const F& bench) {
  try {
    bench(std::vector<std::string_view>(argv + 1, argv + argc));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return 1;
  }
}

/// For benches of layers: [PRECISION [BATCH...]]. Prints `columns` and calls measure(session, numerics, n) for each
/// batch (default 1, 8 and 64).
template <typename F>
int run_batches(std::string_view name, int argc, char** argv, std::string_view columns, const F& measure) {
  return run(name, argc, argv, [&](std::span<const std::string_view> arguments) {
    const Numerics numerics = parse_numerics(arguments.empty() ? "fp16" : arguments[0]);
    std::vector<std::int64_t> batches;
    for (const std::string_view text : arguments.subspan(arguments.empty() ? 0 : 1)) {
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), batches.emplace_back());
      if (error != std::errc{} || end != text.data() + text.size() || batches.back() < 1)
        throw std::invalid_argument(fmt::format("'{}' is no batch", text));
    }
    if (batches.empty()) batches = {1, 8, 64};
    const cuda::Session session(0);
    fmt::print("{}\n", columns);
    for (const std::int64_t n : batches) measure(session, numerics, n);
  });
}

}  // namespace lenslet::bench
