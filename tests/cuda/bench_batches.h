#pragma once
// The command line of benches that go through layers: [ARITHMETIC [BATCH...]].

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/cuda/session.h"
#include "lenslet/numerics.h"

namespace lenslet {

/// Prints `columns`, and calls measure(session, numerics, n) for each batch, 1, 8 and 64 where none is asked for.
template <typename F>
int bench_batches(int argc, char** argv, std::string_view name, std::string_view columns, const F& measure) {
  try {
    const Numerics numerics = parse_numerics(argc > 1 ? argv[1] : "fp16");
    std::vector<std::int64_t> batches;
    for (int i = 2; i < argc; ++i) {
      const std::string_view text = argv[i];
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), batches.emplace_back());
      if (error != std::errc{} || end != text.data() + text.size() || batches.back() < 1)
        throw std::invalid_argument(fmt::format("'{}' is no batch", text));
    }
    if (batches.empty()) batches = {1, 8, 64};
    const cuda::Session session(0);
    fmt::print("{}\n", columns);
    for (const std::int64_t n : batches) measure(session, numerics, n);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return 1;
  }
}

}  // namespace lenslet
