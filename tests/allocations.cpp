#include "tests/allocations.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LENSLET_OWN_NEW 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LENSLET_OWN_NEW 0
#endif
#endif
#ifndef LENSLET_OWN_NEW
#define LENSLET_OWN_NEW 1
#endif

namespace {

std::atomic<bool> counting{false};
std::atomic<int> counted{0};
std::atomic<std::int64_t> live{0};

constexpr int never = -1;
// For one thread, so that workers that start or sleep do not shift the count.
thread_local int left = never;  // until the refusal
thread_local bool keeps_refusing = false, refused = false;

}  // namespace

#if LENSLET_OWN_NEW
namespace {

bool refuses() {
  if (left == never) return false;
  if (left > 0) {
    --left;
    return false;
  }
  refused = true;
  if (!keeps_refusing) left = never;
  return true;
}

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (counting.load(std::memory_order_relaxed)) counted.fetch_add(1, std::memory_order_relaxed);
  if (refuses()) throw std::bad_alloc();
  const std::size_t size = (bytes + alignment) / alignment * alignment;
  void* memory = alignment <= alignof(std::max_align_t) ? std::malloc(size) : std::aligned_alloc(alignment, size);
  if (memory == nullptr) throw std::bad_alloc();
  live.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

void release(void* memory) noexcept {
  if (memory != nullptr) live.fetch_sub(1, std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
void* operator new[](std::size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t a) { return allocate(bytes, static_cast<std::size_t>(a)); }
void* operator new[](std::size_t bytes, std::align_val_t a) { return allocate(bytes, static_cast<std::size_t>(a)); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
#endif

namespace lenslet::test {

bool allocations_are_counted() { return LENSLET_OWN_NEW != 0; }

AllocationCount::AllocationCount() {
  counted = 0;
  counting = true;
}
AllocationCount::~AllocationCount() { counting = false; }
int AllocationCount::count() const { return counted.load(); }

AllocationFailure::AllocationFailure(int n, bool and_all_after) {
  refused = false;
  keeps_refusing = and_all_after;
  left = n;
}
AllocationFailure::~AllocationFailure() { left = never; }
bool AllocationFailure::happened() const { return refused; }

std::int64_t live_allocations() { return live.load(); }

}  // namespace lenslet::test
