#include "lenslet/host.h"

namespace lenslet {

Executor::~Executor() = default;
Allocator::~Allocator() = default;

}  // namespace lenslet
