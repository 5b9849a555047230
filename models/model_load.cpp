// Model::load and Model::load_bytes: the one place where a file format meets the executor.

#include "lenslet/error.h"
#include "lenslet/model.h"
#include "models/limits.h"
#include "models/load_onnx.h"
#include "models/mapped_file.h"
#include "runtime/exec/model_impl.h"

namespace lenslet {

namespace {

Model load_named(std::span<const std::byte> bytes, const std::shared_ptr<const void>& owner, const LoadOptions& options,
                 const std::string& name) {
  Graph graph;
  try {
    graph = load_onnx(bytes, owner, options, name);
  } catch (const Error& error) {
    throw error.within(name);
  }
  return make_model(std::move(graph));
}

}  // namespace

Model Model::load(const std::filesystem::path& file, const LoadOptions& options) {
  const MappedFile mapped = map_file(file, limits::model_file_bytes);
  LoadOptions resolved = options;
  if (resolved.external_data_dir.empty()) resolved.external_data_dir = file.parent_path();
  if (resolved.external_data_dir.empty()) resolved.external_data_dir = ".";
  return load_named(mapped.bytes, mapped.owner, resolved, file.filename().string());
}

Model Model::load_bytes(std::span<const std::byte> bytes, const LoadOptions& options, const std::string& name) {
  return load_named(bytes, nullptr, options, name);
}

}  // namespace lenslet
