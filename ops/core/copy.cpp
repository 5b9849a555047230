#include "ops/core/copy.h"

#include <cassert>
#include <cstring>

#include "ops/core/grain.h"

namespace lenslet {

void copy_bytes(const Tensor& from, Tensor& to, ThreadPool& pool) {
  assert(from.bytes() == to.bytes());
  if (from.data() == to.data()) return;
  const auto* source = static_cast<const std::byte*>(from.data());
  auto* target = static_cast<std::byte*>(to.data());
  pool.parallel_for(static_cast<std::int64_t>(from.bytes()), copy_grain_bytes,
                    [&](std::int64_t begin, std::int64_t end, int) {
                      std::memcpy(target + begin, source + begin, static_cast<std::size_t>(end - begin));
                    });
}

}  // namespace lenslet
