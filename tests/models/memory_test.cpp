// Reading and writing files when memory is short.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "lenslet/model.h"
#include "lenslet/tensor_file.h"
#include "models/npy_header.h"
#include "tests/models/onnx_writer.h"
#include "tests/models/temp_dir.h"
#include "tests/refused_memory.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

// y = x + w; the weight of three floats is in a file of its own.
ModelText external_model() {
  ModelText model = relu_model();
  model.nodes = {node("Add", {"x", "w"}, {"y"}, "add")};
  model.initializers = {tensor("w", f32, {3}, [](pbf_writer& writer) {
    writer.add_message(13, message([](pbf_writer& entry) {
                         entry.add_string(1, "location");
                         entry.add_string(2, "weights.bin");
                       }));
    writer.add_enum(14, 1);
  })};
  return model;
}

bool only_has(const std::filesystem::path& folder, std::initializer_list<const char*> names) {
  std::ptrdiff_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (std::find(names.begin(), names.end(), name) == names.end()) return false;
    ++count;
  }
  return count == static_cast<std::ptrdiff_t>(names.size());
}

std::ptrdiff_t open_files() { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}); }

/// Of this process, in pages.
std::int64_t mapped_pages() {
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages;
}

}  // namespace

// Reads files of 4 MiB that are not weights, 50 times each; a file left open or mapped shows.
TEST_CASE("memory/nothing_stays_open_or_mapped") {
  const TempDir folder;
  ModelText model = relu_model();
  model.more = message([](pbf_writer& writer) { writer.add_string(1000, std::string(std::size_t{4} << 20, 'm')); });
  const auto file = folder.write("model.onnx", model.bytes());
  const auto damaged = folder.write("damaged.onnx", model.bytes() + "\x07");
  const auto tensor = folder.write("t.npy", npy_header(DType::u8, Shape{3}) + std::string(std::size_t{4} << 20, 't'));
  const auto attempt = [&](const auto& f) {
    try {
      f();
    } catch (const Error&) {
    }
  };
  const auto all = [&] {
    attempt([&] { Model::load(file); });
    attempt([&] { Model::load(damaged); });
    attempt([&] { read_npy(tensor); });
    attempt([&] { read_npy(folder.path()); });
    attempt([&] { Model::load(folder / "none.onnx"); });
    attempt([&] { write_npy(folder / "y.npy", Tensor::of<float>(Shape{1}, {1})); });
    attempt([&] { write_npy(folder.path(), Tensor::of<float>(Shape{1}, {1})); });
    attempt([&] { write_npy("/dev/null", Tensor::of<float>(Shape{1}, {1})); });
  };
  all();
  const std::ptrdiff_t files = open_files();
  const std::int64_t pages = mapped_pages();
  for (int i = 0; i < 50; ++i) all();
  CHECK(open_files() == files);
  CHECK(mapped_pages() - pages < 25 << 10);  // 100 MiB
  CHECK(only_has(folder.path(), {"model.onnx", "damaged.onnx", "t.npy", "y.npy"}));
}

TEST_CASE("memory/loading") {
  const TempDir folder;
  folder.write("weights.bin", std::string(12, '\0'));
  const std::filesystem::path file = folder.write("model.onnx", external_model().bytes());
  check_refused_memory([&] { static_cast<void>(Model::load(file)); });
  const std::string data = relu_model().bytes();
  check_refused_memory([&] { static_cast<void>(Model::load_bytes(bytes_of(data))); });
  // A refusal that lists nodes.
  ModelText strange = relu_model();
  strange.nodes = {node("Strange", {"x"}, {"y"}, "a"), node("Stranger", {"y"}, {"z"}, "b")};
  const std::string refused = strange.bytes();
  check_refused_memory([&] {
    try {
      static_cast<void>(Model::load_bytes(bytes_of(refused)));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unsupported) throw;
    }
  });
}

TEST_CASE("memory/tensor_files") {
  const TempDir folder;
  const std::filesystem::path file = folder / "x.npy", other = folder / "y.npy";
  const Tensor x = Tensor::of<float>(Shape{2, 3}, {1, 2, 3, 4, 5, 6});
  write_npy(file, x);
  check_refused_memory([&] { static_cast<void>(read_npy(file)); });
  check_refused_memory([&] { write_npy(other, x); });
  CHECK(only_has(folder.path(), {"x.npy", "y.npy"}));
  const Tensor written = read_npy(other);
  CHECK(std::memcmp(written.data(), x.data(), x.bytes()) == 0);
  const std::filesystem::path proto = folder.write("t.pb", tensor("t", f32, {2}, [](pbf_writer& writer) {
                                                     const float values[] = {1, 2};
                                                     writer.add_packed_float(4, std::begin(values), std::end(values));
                                                   }));
  std::string name;
  check_refused_memory([&] { static_cast<void>(read_tensor_pb(proto, &name)); });
}
