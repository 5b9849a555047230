// Running allocates nothing. Built without the sanitizers only, which bring an operator new of their own.

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "lenslet/runner.h"
#include "runtime/exec/model_impl.h"
#include "small_net.h"

namespace {

// Counts what the whole process allocates while it is switched on.
std::atomic<bool> counting{false};
std::atomic<int> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
  const std::size_t size = (bytes + alignment) / alignment * alignment;
  void* memory = alignment <= alignof(std::max_align_t) ? std::malloc(size) : std::aligned_alloc(alignment, size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void* operator new[](std::size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t a) { return counted(bytes, static_cast<std::size_t>(a)); }
void* operator new[](std::size_t bytes, std::align_val_t a) { return counted(bytes, static_cast<std::size_t>(a)); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace lenslet::test {

TEST_CASE("exec/runner/run_allocates_nothing") {
  const Model model = make_model(small_net());
  const Tensor x = random_tensor({2, 3, 17, 19}, 5);
  for (const int threads : {1, 2}) {
    CAPTURE(threads);
    Runner runner(model, on_cpu(2, threads));
    runner.run(x);
    allocations = 0;
    counting = true;
    runner.run(x);
    counting = false;
    CHECK(allocations.load() == 0);
  }
}

TEST_CASE("exec/runner/run_loaded_allocates_nothing") {
  Runner runner(make_model(small_net()), on_cpu(2, 1));
  const std::array<std::uint8_t, 30 * 40 * 3> pixels{};
  ImageSpec spec;
  spec.height = 17;
  spec.width = 19;
  spec.resize_size = 20;
  for (int round = 0; round < 2; ++round) {
    runner.load_image(0, {pixels.data(), 30, 40, 3}, spec, 1);
    allocations = 0;
    counting = true;
    runner.run_loaded();
    counting = false;
    if (round > 0) CHECK(allocations.load() == 0);
  }
}

}  // namespace lenslet::test
