// libFuzzer target: any bytes as a model, as a tensor and as an .npy header must give a result or an Error.
// Build: cmake -DCMAKE_CXX_COMPILER=clang++ -DLENSLET_FUZZ=ON; run: lenslet-fuzz-files CORPUS_FOLDER.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "lenslet/error.h"
#include "models/load_onnx.h"
#include "models/npy_header.h"
#include "models/onnx_reader.h"
#include "models/onnx_tensor.h"

namespace {

template <typename F>
void expect_result_or_error(F&& f) {
  try {
    f();
  } catch (const lenslet::Error& error) {
    if (error.kind() == lenslet::ErrorKind::internal) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  expect_result_or_error([bytes] { lenslet::load_onnx(bytes, nullptr, {}, "fuzz").check(); });
  expect_result_or_error([bytes] {
    lenslet::to_tensor(lenslet::read_onnx_tensor(bytes), {.owner = nullptr, .external = nullptr, .widen = true});
  });
  expect_result_or_error([bytes] { lenslet::parse_npy_header(bytes); });
  return 0;
}
