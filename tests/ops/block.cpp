#include "tests/ops/block.h"

#include <cstring>
#include <memory>

namespace lenslet::test {

HostBlock::HostBlock(std::size_t bytes, std::size_t alignment, std::size_t beyond)
    : Block(bytes), memory_(DType::u8, Shape{static_cast<std::int64_t>(bytes + 2 * guard_bytes + alignment + beyond)}) {
  void* data = static_cast<std::byte*>(memory_.data()) + guard_bytes;
  std::size_t space = bytes + guard_bytes + alignment;
  begin_ = static_cast<std::byte*>(std::align(alignment, bytes, data, space)) + beyond - guard_bytes;
  std::memset(this->data(), static_cast<int>(poison), bytes);
  for (std::size_t i = 0; i < guard_bytes; ++i)
    for (const std::size_t at : {i, guard_bytes + bytes + i}) begin_[at] = guard(at);
}

void HostBlock::write(const void* host) {
  if (bytes() > 0) std::memcpy(data(), host, bytes());
}

bool HostBlock::intact() {
  for (std::size_t i = 0; i < guard_bytes; ++i)
    for (const std::size_t at : {i, guard_bytes + bytes() + i})
      if (begin_[at] != guard(at)) return false;
  return true;
}

}  // namespace lenslet::test
