// Model::load and Model::load_bytes: the only code that knows both a file format and the executor.

#include <span>
#include <utility>

#include "base/boundary.h"
#include "lenslet/error.h"
#include "lenslet/model.h"
#include "models/load_onnx.h"
#include "runtime/exec/model_impl.h"

namespace lenslet {

namespace {

Model load_named(std::span<const std::byte> bytes, ModelFile* file, const LoadOptions& options,
                 const std::string& name) {
  Graph graph;
  try {
    graph = load_onnx(bytes, file, options, name);
  } catch (const Error& error) {
    throw error.within(name);
  }
  return make_model(std::move(graph));
}

}  // namespace

Model Model::load(const std::filesystem::path& file, const LoadOptions& options) {
  return at_boundary([&] {
    ModelFile opened(file);
    LoadOptions resolved = options;
    if (resolved.external_data_dir.empty()) resolved.external_data_dir = file.parent_path();
    if (resolved.external_data_dir.empty()) resolved.external_data_dir = ".";
    return load_named(opened.bytes(), &opened, resolved, file.filename().string());
  });
}

Model Model::load_bytes(std::span<const std::byte> bytes, const LoadOptions& options, const std::string& name) {
  return at_boundary([&] { return load_named(bytes, nullptr, options, name); });
}

}  // namespace lenslet
